"""Rewriters: a lesson put into words that fit the case at hand; the port is `actors.ports.models`."""
