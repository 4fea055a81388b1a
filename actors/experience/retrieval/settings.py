"""`NavigatorSettings`: `[navigator]` in config.toml."""

import msgspec

from actors.experience.retrieval.ranking import RankSettings


class NavigatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How lessons are found."""

    enabled: bool = True
    """Off: no lesson is ever given; they are still drawn and kept."""
    k: int = 3
    """Lessons at most for one goal."""
    min_similarity: float = 0.27
    """How alike by vector and words (`navigator.rank.words`) a lesson and the goal, or the step, must be for it to fit
    where the goal does not name it. Chosen with all-MiniLM-L6-v2; models differ in how alike anything is to them."""
    min_words: float = 0.2
    """Share of the words of the goal, or of the step, that a lesson must cover to fit where there is no vector; see
    docs/measured.md for what is found and what is given in vain."""
    trial_share: float = 0.5
    """Share of the questions in which a candidate is given, if there is no active lesson for its intent."""
    neighbours: int = 32
    """Lessons that are looked at for one goal, by vector and by words each."""
    rank: RankSettings = RankSettings()
    query_chars: int = 2000
    """Of a goal, and of a step, that are embedded."""
    max_lessons: int = 100_000
    """Of one tenant that can be found, the most useful ones; the others stay in the store."""
    refresh_seconds: float = 30.0
    """Between two looks at the store: where several daemons share the stream, each hears a part of the news."""
    batch: int = 64
    """Records taken, and texts embedded, at a time."""
    embed_timeout: float = 30.0
    """Seconds for one answer of the embedder."""
    question_timeout: float = 3.0
    """Seconds for the vector of a goal; without it, its lessons are found by intent and words."""
    embed_seconds: float = 5.0
    """Seconds at a time that are spent on lessons without a vector before news is looked at again."""
    probe_seconds: float = 600.0
    """Between two looks whether another model answers behind the embedder's name."""
    rewrite_timeout: float = 5.0
    """Seconds for a rewriter, if there is one, before a lesson is given as it is."""
    snapshots: int = 32
    """Weight versions whose lessons are kept on record; what serves is always among them."""
    follow_weights: bool = False
    """On: an engine that goes back to an older version takes the lessons of that version along, until the next version
    comes."""
