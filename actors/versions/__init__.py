"""Versions: what should serve, derived from the records alone, and which weights served when.

In: verdicts, directives, versions served. Out: the goal of the swapper, and the version of an answer that names none.
"""
