"""How much the rollout plays, and how."""

import msgspec


class RolloutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is played, and how."""

    groups: int = 8
    """Tasks a round."""
    group_size: int = 8
    """Attempts a task."""
    stall_seconds: float = 60.0
    """Without a new version for so long, another round is played."""
    guided_share: float = 0.5
    """Share of a group that sees lessons, if any fit. Without an unguided part nothing tells what a lesson is worth:
    neither its trials nor the closed-book probe go on."""
    lessons: int = 2
    """Lessons in a prompt at most."""
    families: str = ""
    """Kinds of task, one letter each; empty for the environment's usual mix."""
    first_seed: int = 0
    """Number of the first task of a fresh store."""
    max_steps: int = 24
    max_tokens: int = 512
    """Per step."""
    concurrency: int = 64
    """Episodes at once."""
    step_timeout: float = 60.0
    """Seconds for one answer of the engine or the environment."""
    group_seconds: float = 900.0
    """Seconds for all attempts at a task, from the first one on; those that ended by then go out."""
