"""What counts how much in tool search. Why these figures: docs/tools.md."""

from typing import Annotated

import msgspec

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
FUSION = 60
"""The constant of reciprocal rank fusion: rank r gives weight / (this + r)."""
GOAL = 0.5
"""Weight of the goal beside the step's, where a step is given."""
NAME, TITLE, TAGS, PARAMETERS = 3.0, 2.0, 1.0, 0.5
"""Weight of a word in a tool's name, title, tags and API's name, and parameters; one in its description has 1."""
MAX_TEXT = 4000
"""Characters of a description, and of all parameters together, that are looked at and shown."""
MAX_QUERY, MAX_TERMS = 2000, 64
"""Characters of a goal, and of a step, that are looked at; different words of both, the most telling ones."""


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of the rankings that a `ToolIndex` fuses; 0 leaves one out."""

    words: NotNegative = 1.0
    vectors: NotNegative = 2.0
    """Where an embedder knows what words mean; at 0 nothing is embedded."""
    apis: NotNegative = 0.3
    """First which API, then which of its operations."""
