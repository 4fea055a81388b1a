"""When the monitors speak up, and what they do then. docs/promotion.md explains each."""

import msgspec

from actors.monitoring.monitor import Action


class VersionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version that serves against the one before it, and against the oldest remembered."""

    error_rate: float = 0.01
    """Chance that any of these monitors speaks up about a swap between versions that behave alike, over all looks; and
    as much again that anything is said of one agent since, or of all over several versions."""
    honest_error: float = 0.05
    """Chance that a rise of the judge that the outcomes followed is taken for reward hacking, over all looks."""
    min_runs: int = 24
    """Runs that the side before the swap must have; with an outcome, where outcomes are compared."""
    first_look: int = 12
    """Runs after the swap at which a monitor looks for the first time."""
    growth: float = 1.4
    """It looks again when there are so many times as many."""
    sample: int = 384
    """Runs kept for each version, and apart from them as many with an outcome; also how long a new version is watched
    in this way, in runs, or in runs with an outcome."""
    versions: int = 6
    """Versions that are kept, the serving one included."""
    outcome_fall: float = 0.1
    """Smallest fall of success that is acted on."""
    outcome_action: Action = "rollback"
    judge_rise: float = 0.05
    """Smallest rise of the judge's score (share of good among the steps that it labelled) that can be hacking."""
    outcome_follows: float = 1.0
    """By how much success must rise for each point that the judge's score rose, to be no hacking."""
    hacking_action: Action = "rollback"
    invalid_rise: float = 0.1
    """Smallest rise of the share of runs with a call that does not fit the tools."""
    validity_action: Action = "rollback"
    question_rise: float = 0.1
    """Smallest rise of the share of runs in which a turn asks instead of acting."""
    question_action: Action = "freeze"
    length_ratio: float = 1.5
    """Smallest growth of what the model writes a step, median."""
    length_action: Action = "freeze"
    steps_ratio: float = 1.5
    """Smallest growth of the steps a run takes, median."""
    steps_action: Action = "freeze"
    loop_rise: float = 0.1
    """Smallest rise of the share of runs that go round in circles."""
    loop_action: Action = "freeze"
    pays: float = 0.05
    """Hacking, questions, length, steps and repetition are only told while success is up by so much: then they pay.
    Invalid calls too, where that rise is shown."""


class TrafficSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What users ask for: kinds of goal and length of prompts, block by block against the first block."""

    error_rate: float = 0.001
    """Chance that this speaks up while nothing changes, ever, until it next does."""
    block: int = 128
    """Runs of a block."""
    kinds: int = 16
    """Most frequent kinds of goal that are counted apart; the others are one."""
    distance: float = 0.25
    """Smallest Jensen-Shannon distance between the mixes of goals, 0 to 1."""
    prompt_ratio: float = 1.3
    """Smallest change of the median prompt's length, either way."""
    action: Action = "tell"


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The judge while one version serves: does it still say the same of runs that ended alike?"""

    error_rate: float = 0.001
    """Chance that this speaks up while one version serves and nothing changes."""
    block: int = 64
    """Judged runs of a block; each is compared with the first one under the version that serves."""
    change: float = 0.15
    """Smallest change of the judge's score, or of its share of abstentions, either way."""
    score_action: Action = "freeze"
    """When labels mean something else than before, nothing should be learned from them."""
    abstain_action: Action = "tell"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What serving feels like: errors and waiting, before and after a swap."""

    error_rate: float = 0.001
    """Chance that one of these speaks up about a swap that changed nothing, if calls are independent of each other."""
    calls: int = 512
    """Calls through the tap that are kept for each version."""
    min_calls: int = 40
    """Calls on either side of a comparison."""
    growth: float = 1.3
    """The next look is when there are so many times as many calls."""
    strikes: int = 2
    """Looks in a row that must agree: calls of one moment fare alike."""
    window_seconds: float = 600.0
    """Of the engine's own figures that stand for "before", and for which "after" is watched."""
    settle_seconds: float = 20.0
    """After a swap, left out: caches are cold."""
    fail_rise: float = 0.05
    """Smallest rise of the share of calls that fail."""
    slow_factor: float = 2.0
    """Smallest growth of the 95th percentile of time to first token, or of time for a call."""
    queue_factor: float = 4.0
    """Growth of the mean queue that is told (it never acts: load does that too)."""
    load_factor: float = 1.5
    """With so many times as many calls a second as before, slowness is put down to load, and only told."""
    action: Action = "rollback"
    """For failing calls."""
    slow_action: Action = "tell"
    """For slow ones. Weights of one shape take the same time for a token, whatever is in them: what made the engine
    slow is beside it, as a rule, and answers that grew long are `length`'s to judge. "rollback" and "freeze" are for an
    engine that has its machine to itself."""
    stall_seconds: float = 60.0
    """An engine with requests in hand that makes no token for so long raises an alarm."""
    pause_seconds: float = 60.0
    """As does one that is paused for so long."""
    alarm_action: Action = "tell"


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
    tool_sightings: int = 2
    """An agent's runs in a row with a new tool list before it is believed: one may be a client's slip. An agent that
    had several lists needs more."""
    forget_seconds: float = 86_400.0
    """A tool list that was away for so long is news again."""
    tool_lists: int = 64
    """Tool lists that are remembered for each agent; the one seen longest ago goes first."""


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the monitors speak up, and what they do then."""

    window: int = 512
    """Newest runs that are remembered whatever their version."""
    versions: VersionSettings = VersionSettings()
    traffic: TrafficSettings = TrafficSettings()
    judge: JudgeSettings = JudgeSettings()
    engine: EngineSettings = EngineSettings()
    tools: ToolSettings = ToolSettings()
