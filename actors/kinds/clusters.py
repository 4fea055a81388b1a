"""Which kind of goal a trajectory has: goals that differ in names and numbers alone share a cluster.

A cluster is a digest of the goal with its entities masked: no state, no model, the same answer in every process. Goals
in free words are a cluster each; `actors.kinds.neighbourhoods` says which are alike.
"""

import re

from actors.messages import derived_id

_DIGITS = 8
"""Of a digest, in hexadecimal: a thousand kinds share none, but in one of 8,000 such worlds. At three digits one goal
in sixteen was taken for one of 256 others. Whoever remembers clusters bounds their number."""
_MAX_CHARACTERS = 2000
"""A goal may be a document: its beginning says what kind it is."""
_MARKED = re.compile(r"\b(\w+):\S+")
"""`to:Oslo`, `order:A17`: the marker stays, its value goes."""
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|`[^`]*`|(?<!\w)'[^']*'(?!\w)")
_IDENTIFIER = re.compile(r"\b\w*\d[\w.-]*")
_CAPITALISED = re.compile(r"(?<![a-z]{3}[.!?]\s)(?<!^)\b[A-Z][\w'-]*\.?")
"""Names and titles ("Mr."): words with a capital, but for the first of a sentence."""
_BLANKS = re.compile(r"(?:\*[\s,]*(?:and\s+)?)+\*|\s+")


def template_of(goal: str) -> str:
    """`goal` with entities replaced by `*`: marked values, quotations, words with digits, names."""
    # Half a surrogate pair, which broken clients send, has no bytes to digest.
    text = goal[:_MAX_CHARACTERS].encode("utf-8", "replace").decode().strip()
    text = _QUOTED.sub("*", text)
    text = _MARKED.sub(r"\1:*", text)
    text = _IDENTIFIER.sub("*", text)
    text = _CAPITALISED.sub("*", text)
    return _BLANKS.sub(lambda found: "*" if "*" in found.group() else " ", text).lower()


def cluster_of(goal: str) -> str:
    """The cluster of `goal`; goals without text are all in one of their own."""
    template = template_of(goal)
    return f"g{derived_id('cluster', template)[:_DIGITS]}" if template else "none"
