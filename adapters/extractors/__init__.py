"""Extractors: trajectories to lessons in free words, by a language model; the port is `actors.ports.models`."""
