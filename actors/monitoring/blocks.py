"""Drift without a swap, block by block: of what users ask for, and of what the judge says.

The first block of runs is the reference; each following one is compared with it, as look k of a series that spends its
error (`sequential.Looks`). Blocks do not overlap, so a change is found at the end of the first block that has it whole,
if it is large enough to be found in a block at all. After a finding the series starts again from the block that showed
it: what is normal now is not told every hour.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec

from actors.monitoring.history import History
from actors.monitoring.monitor import Action, Finding, Monitor
from actors.statistics import change_tests as seq
from actors.statistics.change_tests import Looks, Strata
from actors.tool_results.runs import RunSummary

_Key = tuple[object, ...]
_TRAFFIC_BLOCK, _JUDGE_BLOCK = 128, 64
"""Runs of a block, and judged runs: a change of a third of them shows in one."""
_ERROR_RATE = 0.001
"""Chance that one of these speaks up while nothing changes: of traffic ever, until it next does; of the judge while one
version serves."""
_KINDS = 16
"""Most frequent kinds of goal that are counted apart; the others are one."""
_DISTANCE = 0.25
"""Smallest Jensen-Shannon distance between the mixes of goals, 0 to 1, that is told: smaller ones come and go daily."""
_PROMPT_RATIO = 1.3
"""Smallest change of the median prompt's length, either way."""
_JUDGE_CHANGE = 0.15
"""Smallest change of the judge's score, or of its share of abstentions, either way."""


class Blocks(msgspec.Struct):
    """A reference block, the one that is filling, and how many were looked at."""

    reference: list[RunSummary] = []
    filling: list[RunSummary] = []
    looks: Looks = msgspec.field(default_factory=Looks)
    blocks: int = 0
    """Since the daemon first ran; makes each finding another one."""
    version: int = -1
    """That served, if that matters."""
    readings: dict[str, float] = {}

    def full(self, size: int) -> list[RunSummary] | None:
        """A block to be compared with the reference, once there is one."""
        if len(self.filling) < size:
            return None
        block, self.filling = self.filling, []
        self.blocks += 1
        if not self.reference:
            self.reference = block
            return None
        self.looks.take(0, 1.0)
        return block

    def restart(self, reference: list[RunSummary]) -> None:
        """A new normal."""
        self.reference, self.filling, self.looks = reference, [], Looks()


class TrafficDrift(Monitor):
    """What users ask for: kinds of goal, length of prompts."""

    name = "traffic"
    kept = Blocks
    _state: Blocks

    def __init__(self) -> None:
        self._state = Blocks()

    def judged(self, run: RunSummary) -> None:
        """Only then its kind of goal is known."""
        self._state.filling.append(run)

    def look(self, history: History, now: float) -> list[Finding]:
        state = self._state
        block = state.full(_TRAFFIC_BLOCK)
        if block is None:
            return []
        level = state.looks.spend(_ERROR_RATE / 3)  # the mix, prompts longer, prompts shorter
        found: list[str] = []
        p, distance = self._mix(block, state.reference)
        if p <= level and distance >= _DISTANCE:
            found.append(f"other kinds of goal than before (Jensen-Shannon distance {distance:.2f})")
        prompts = _sorted(block, state.reference, lambda run: run.prompt, _alike)
        size, was = seq.medians(prompts)
        ratio = size / was if was else 1.0
        longer, shorter = seq.size_rise(prompts), seq.size_rise([(before, after) for after, before in prompts])
        if (longer <= level and ratio >= _PROMPT_RATIO) or (shorter <= level and ratio * _PROMPT_RATIO <= 1.0):
            found.append(f"prompts of other length than before, median {was:.0f} -> {size:.0f}")
        state.readings = {"distance": distance, "distance_p": p, "prompt": size, "prompt_before": was}
        if not found:
            return []
        state.restart(block)
        details = {"cause": "traffic", "distance": f"{distance:.3f}", "prompt_ratio": f"{ratio:.3f}"}
        reason = f"users ask for something else: {'; '.join(found)} ({len(block)} runs)"
        return [
            Finding(
                cause="traffic", key=(state.blocks,), action="tell", reason=reason, details=details
            )
        ]  # fmt: skip

    def _mix(self, block: Sequence[RunSummary], reference: Sequence[RunSummary]) -> tuple[float, float]:
        """(p-value, distance) of the mixes of goals: each frequent kind by the exact test, Bonferroni over all."""
        counts = Counter(run.cluster for run in (*block, *reference))
        kinds = [kind for kind, _ in counts.most_common(_KINDS)]
        names = {kind: at for at, kind in enumerate(kinds)}
        after, before = ([names.get(run.cluster, len(kinds)) for run in runs] for runs in (block, reference))
        size = len(kinds) + (len(counts) > len(kinds))
        best = 1.0
        for kind in range(size):
            pair = [([float(one == kind) for one in after], [float(one == kind) for one in before])]
            best = min(best, seq.share_rise(pair), seq.share_fall(pair))
        distance = seq.divergence(
            [after.count(kind) for kind in range(size)], [before.count(kind) for kind in range(size)]
        )
        return min(1.0, best * 2 * size), distance


class JudgeDrift(Monitor):
    """What the judge says of runs that ended alike, while one version serves.

    Runs are compared by how they ended, success with success and failure with failure: a world in which more fails
    changes how often the judge sees a failure, but not what it says of one. So its agreement with outcomes is watched
    and not the outcomes.
    """

    name = "judge"
    kept = Blocks
    _state: Blocks

    def __init__(self, action: Action) -> None:
        """`action` follows where its score moves."""
        self._state = Blocks()
        self._action: Action = action

    def judged(self, run: RunSummary) -> None:
        if run.good + run.bad + run.abstained:
            self._state.filling.append(run)

    def look(self, history: History, now: float) -> list[Finding]:
        state = self._state
        version = -1 if history.swap is None else history.swap.version
        if version != state.version:
            # Another version acts otherwise, and the judge may rightly think otherwise of it.
            state.reference, state.looks, state.version = [], Looks(), version
        if version >= 0:
            state.filling = [run for run in state.filling if run.low < 0 or run.low == run.high == version]
        block = state.full(_JUDGE_BLOCK)
        if block is None:
            return []
        level = state.looks.spend(_ERROR_RATE / 4)  # score and abstentions, up and down
        found: list[Finding] = []
        questions: tuple[tuple[str, str, Callable[[RunSummary], float | None], Action], ...] = (
            ("judge-score", "its score", _score, self._action),
            ("judge-abstains", "its share of abstentions", _abstained, "tell"),
        )
        for cause, text, value, action in questions:
            values = _sorted(block, state.reference, value, _ended_alike)
            score, was = seq.means(values)
            up, down = seq.mean_rise(values), seq.mean_rise([(before, after) for after, before in values])
            state.readings |= {f"{cause[6:]}_before": was, f"{cause[6:]}_after": score}
            if min(up, down) <= level and abs(score - was) >= _JUDGE_CHANGE:
                reason = f"the judge speaks otherwise of runs that ended alike: {text} {was:.2f} -> {score:.2f}"
                found.append(
                    Finding(
                        cause=cause,
                        key=(state.blocks,),
                        action=action,
                        reason=f"{reason} while version {version} serves ({len(block)} runs)",
                        details={"cause": cause, "before": f"{was:.3f}", "after": f"{score:.3f}"},
                    )
                )
        if found:
            state.restart(block)
        return found


def _sorted(
    after: Sequence[RunSummary],
    before: Sequence[RunSummary],
    value: Callable[[RunSummary], float | None],
    key: Callable[[RunSummary], _Key],
) -> Strata:
    found: defaultdict[_Key, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((after, before)):
        for run in runs:
            one = value(run)
            if one is not None:
                found[key(run)][side].append(one)
    return list(found.values())


def _alike(run: RunSummary) -> _Key:
    return run.tenant, run.tokens


def _ended_alike(run: RunSummary) -> _Key:
    return run.tenant, run.tools, run.succeeded


def _score(run: RunSummary) -> float | None:
    return run.judged


def _abstained(run: RunSummary) -> float | None:
    return run.abstained / (run.good + run.bad + run.abstained)
