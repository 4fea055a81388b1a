"""Drift of the judge, block by block, while one version serves.

The first block of judged runs is the reference; each following one is compared with it, as look k of a series that
spends its error (`Looks`). Blocks do not overlap, so a change is found at the end of the first block that has it whole.
After a finding the series starts again from the block that showed it: what is normal now is not told every hour.

Runs are compared by how they ended, success with success and failure with failure: a world in which more fails changes
how often the judge sees a failure, but not what it says of one. So its agreement with outcomes is watched and not the
outcomes.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from actors.monitoring.history import History
from actors.monitoring.monitor import Action, Finding, Monitor
from actors.statistics.change_tests import Looks, Strata, mean_rise, means
from actors.tool_results.runs import RunSummary

_BLOCK = 64
"""Judged runs of a block: a change of a third of them shows in one."""
_ERROR_RATE = 0.001
"""Chance that it speaks up while nothing changes and one version serves."""
_CHANGE = 0.15
"""Smallest change of the judge's score, either way."""


class _State(msgspec.Struct):
    reference: list[RunSummary] = []
    filling: list[RunSummary] = []
    looks: Looks = msgspec.field(default_factory=Looks)
    blocks: int = 0
    """Since the daemon first ran; makes each finding another one."""
    version: int = -1
    """That serves."""
    readings: dict[str, float] = {}


class JudgeDrift(Monitor):
    """What the judge says of runs that ended alike."""

    name = "judge"
    kept = _State
    _state: _State

    def __init__(self, action: Action) -> None:
        """`action` follows where its score moves."""
        self._state = _State()
        self._action: Action = action

    def look(self, history: History, now: float) -> list[Finding]:
        state = self._state
        state.filling += [run for run in history.fresh.judged if run.judged is not None]
        version = -1 if history.swap is None else history.swap.version
        if version != state.version:
            # Another version acts otherwise, and the judge may rightly think otherwise of it.
            state.reference, state.looks, state.version = [], Looks(), version
        if version >= 0:
            state.filling = [run for run in state.filling if run.low < 0 or run.low == run.high == version]
        if len(state.filling) < _BLOCK:
            return []
        block, state.filling = state.filling, []
        state.blocks += 1
        if not state.reference:
            state.reference = block
            return []
        state.looks.take(0, 1.0)
        values = _ended_alike(block, state.reference)
        score, was = means(values)
        up, down = mean_rise(values), mean_rise([(before, after) for after, before in values])
        state.readings = {"score_before": was, "score_after": score}
        if min(up, down) > state.looks.spend(_ERROR_RATE / 2) or abs(score - was) < _CHANGE:
            return []
        state.reference, state.looks = block, Looks()
        return [
            Finding(
                cause="judge-score",
                key=(state.blocks,),
                action=self._action,
                reason=f"the judge speaks otherwise of runs that ended alike: its score {was:.2f} -> {score:.2f} while "
                f"version {version} serves ({len(block)} runs)",
                details={"cause": "judge-score", "before": f"{was:.3f}", "after": f"{score:.3f}"},
            )
        ]


def _ended_alike(after: Sequence[RunSummary], before: Sequence[RunSummary]) -> Strata:
    found: defaultdict[tuple[object, ...], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((after, before)):
        for run in runs:
            if run.judged is not None:
                found[run.tenant, run.tools, run.succeeded][side].append(run.judged)
    return list(found.values())
