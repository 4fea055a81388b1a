"""The outside world behind the actors' ports: engines, judges, embedders, environments, ways in."""
