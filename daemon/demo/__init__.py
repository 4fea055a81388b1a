"""The demo: every process of evolved on one machine, real agents at work, and the circle closing."""
