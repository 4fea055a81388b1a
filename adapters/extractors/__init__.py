"""Extractors: trajectories to lessons in free words, where a language model is at hand."""
