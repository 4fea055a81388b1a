"""`NavigatorSettings`: `[navigator]` in config.toml; apart from the navigator, which loads faiss."""

import msgspec


class NavigatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How lessons are found."""

    enabled: bool = True
    """Off: no lesson is ever given; they are still drawn and kept."""
    k: int = 3
    """Lessons at most for one goal."""
    min_similarity: float = 0.27
    """How alike by vector and words, half each, a lesson and the goal, or the step, must be for it to fit where the
    goal does not name it. Chosen with all-MiniLM-L6-v2; models differ in how alike anything is to them."""
