"""The outside world behind small Protocols: engines, judges, embedders, environments, ways in."""
