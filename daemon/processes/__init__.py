"""The other processes (broker, learner, environment service, warm start), and what every process starts with."""
