"""Kinds: what a run is like, and what is held out of training by what it is like.

In: goals and ids. Out: names of kinds, and who is in the gate's exam. Pure; asked from everywhere.
"""
