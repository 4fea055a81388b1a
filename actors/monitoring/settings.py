"""When the monitors speak up, and what they do then. docs/promotion.md explains each."""

import msgspec

from actors.monitoring.monitor import Action


class VersionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version that serves against the one before it, and against the oldest remembered."""

    error_rate: float = 0.01
    """Chance that any of these monitors speaks up about a swap between versions that behave alike, over all looks; and
    as much again that anything is said of one agent since, or of all over several versions."""
    sample: int = 384
    """Runs kept for each version, and apart from them as many with an outcome; also how long a new version is watched
    in this way, in runs, or in runs with an outcome."""
    versions: int = 6
    """Versions that are kept, the serving one included."""
    outcome_action: Action = "rollback"
    """For a fall of success by ten points."""
    hacking_action: Action = "rollback"
    """For a judge who is pleased while success does not follow."""
    validity_action: Action = "rollback"
    """For invalid tool calls in ten runs of a hundred more."""
    question_action: Action = "freeze"
    """For questions instead of acting in ten runs of a hundred more."""
    length_action: Action = "freeze"
    """For steps half as long again."""
    steps_action: Action = "freeze"
    """For runs half as long again."""
    loop_action: Action = "freeze"
    """For ten runs of a hundred more that go round in circles."""


class TrafficSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What users ask for: kinds of goal and length of prompts, block by block against the first block."""

    error_rate: float = 0.001
    """Chance that this speaks up while nothing changes, ever, until it next does."""
    action: Action = "tell"


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The judge while one version serves: does it still say the same of runs that ended alike?"""

    error_rate: float = 0.001
    """Chance that this speaks up while one version serves and nothing changes."""
    score_action: Action = "freeze"
    """When labels mean something else than before, nothing should be learned from them."""
    abstain_action: Action = "tell"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What serving feels like: errors and waiting, before and after a swap."""

    slow_action: Action = "tell"
    """For slow calls. Weights of one shape take the same time for a token, whatever is in them: what made the engine
    slow is beside it, as a rule, and answers that grew long are `length`'s to judge. "rollback" and "freeze" are for an
    engine that has its machine to itself."""


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tools under each agent: other lists, more errors, less success without a swap."""

    error_rate: float = 0.01
    """Chance that an agent under which nothing changed is said to have more errors or less success, a week; outages of
    minutes and the hours of the day are nothing that changed."""
    error_jump: float = 0.15
    """Smallest rise in the share of error steps that counts as drift, in each of six quarters of an hour in a row."""
    collapse: float = 0.3
    """Smallest fall of success without a swap that counts as drift, in each of six quarters of an hour in a row, or
    longer where few runs are reported."""


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the monitors speak up, and what they do then."""

    window: int = 512
    """Newest runs that are remembered whatever their version."""
    versions: VersionSettings = VersionSettings()
    traffic: TrafficSettings = TrafficSettings()
    judge: JudgeSettings = JudgeSettings()
    engine: EngineSettings = EngineSettings()
    tools: ToolSettings = ToolSettings()
