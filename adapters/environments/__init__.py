"""Environments: places where tasks can be attempted and their outcome verified."""
