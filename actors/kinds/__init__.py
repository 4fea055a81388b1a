"""Kinds: what a run is like, how runs like it have fared, and what is held out of training by what it is like.

In: runs, their goals and outcomes. Out: names of kinds, estimates of success, and who is in the gate's exam. No I/O.
"""
