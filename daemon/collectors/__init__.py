"""Prometheus: what the daemon tells of its actors, read from them when somebody asks, never counted twice."""
