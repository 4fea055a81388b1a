"""The composition root: command line, configuration, tap, control API, dashboard, and the demo."""
