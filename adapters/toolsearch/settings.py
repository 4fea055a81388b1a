"""What counts how much in tool search. Why these defaults: docs/tools.md."""

from typing import Annotated

import msgspec

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights and limits of a `ToolIndex`."""

    words: NotNegative = 1.0
    """Weight of the ranking by words (BM25) where rankings are fused; 0 leaves it out."""
    vectors: NotNegative = 2.0
    """Weight of the ranking by vectors, where an embedder knows what words mean; 0 leaves it out, and nothing is
    embedded."""
    apis: NotNegative = 0.3
    """Weight of the ranking of APIs: first which API, then which of its operations. 0 leaves it out."""
    fusion: AtLeastOne = 60
    """The constant of reciprocal rank fusion: rank r gives weight / (fusion + r)."""
    goal: NotNegative = 0.5
    """Weight of the goal beside the step's, where a step is given."""
    name: NotNegative = 3.0
    """Weight of a word in a tool's name; one in its description has 1."""
    title: NotNegative = 2.0
    """Of one in its title."""
    tags: NotNegative = 1.0
    """Of one in its tags, and in its API's name."""
    parameters: NotNegative = 0.5
    """Of one in the names and descriptions of its parameters."""
    max_text: AtLeastOne = 4000
    """Characters of a description, and of all parameters together, that are looked at and shown."""
    max_query: AtLeastOne = 2000
    """Characters of a goal, and of a step, that are looked at."""
    max_terms: AtLeastOne = 64
    """Different words of a query: the most telling ones."""
