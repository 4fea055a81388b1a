"""Graders: how well an attempt at a task went, where no verifier of the environment can say it by itself."""
