"""Rewriters: a lesson put into words that fit the case at hand, before it is given."""
