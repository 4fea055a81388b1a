"""How an inspected batch is put into words and runs of tokens; terminal and HTML share it."""

import math
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

import msgspec

from actors.messages import Processing
from learner.inspect import Inspection, RowView, TokenView, TrajectoryView

Kind = Literal["trained", "context", "cut", "masked"]
"""What a token is: trained on, prompt or observation, experience that is cut out, or sampled and not trained on."""
FAINTEST = 0.15
"""Strength of the colour of the smallest advantage, so that no trained token looks like an untrained one."""


class Run(msgspec.Struct, frozen=True):
    """Neighbouring tokens that look the same."""

    kind: Kind
    tokens: tuple[TokenView, ...]


def kind(token: TokenView) -> Kind:
    """See `Kind`."""
    if token.cut:
        return "cut"
    if token.trained:
        return "trained"
    return "masked" if token.step >= 0 else "context"


def runs(row: RowView) -> list[Run]:
    """The row's tokens by kind; each trained token is a run of its own."""
    found: list[Run] = []
    for which, tokens in groupby(row.tokens, kind):
        own = tuple(tokens)
        found += [Run(which, (token,)) for token in own] if which == "trained" else [Run(which, own)]
    return found


def strength(advantage: float, largest: float) -> float:
    """How strong the colour is, 0 to 1."""
    return FAINTEST + (1 - FAINTEST) * min(1.0, abs(advantage) / largest) if largest > 0 else FAINTEST


def visible(text: str) -> str:
    """`text` without anything that a terminal or a browser would act on: what agents and users wrote is hostile.

    Line feeds stay; other control characters become their pictures, formatting ones (such as those that reverse the
    direction of writing) their code points.
    """
    return "".join(_character(c) for c in text)


def _character(c: str) -> str:
    category = unicodedata.category(c)
    if c == "\n" or category not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return c
    if ord(c) < 0x20:
        return chr(0x2400 + ord(c))
    return "␡" if c == "\x7f" else f"⟨U+{ord(c):04X}⟩"


def about_token(token: TokenView) -> str:
    """A token's figures in one line."""
    words = [f"id {token.id}"]
    if token.step >= 0:
        words += [f"step {token.step}", f"version {token.version}", f"log-prob {token.behaviour:.3f}"]
    if token.trained:
        words += [f"advantage {token.advantage:+.3f}", f"clip {1 - token.clip_low:.2f} to {1 + token.clip_high:.2f}"]
    return ", ".join(words)


def about_trajectory(view: TrajectoryView) -> list[str]:
    """What stands above a trajectory's tokens."""
    words = [view.source or "trajectory"]
    words += [f"group {view.group}"] if view.group else []
    words += [f"cluster {view.cluster}"] if view.cluster else []
    words += [f"outcome {view.outcome:g}"] if view.outcome is not None and math.isfinite(view.outcome) else []
    words += [f"{len(view.experience)} lesson(s) in the prompt"] if view.experience else []
    words += ["only counted in the baseline"] if view.role == "baseline" else []
    lines = [", ".join(words)]
    if view.goal:
        lines.append(f"goal: {visible(view.goal)[:200]}")
    if view.reason:
        lines.append(f"not trained on: {view.reason}")
    return lines


def about_steps(view: TrajectoryView) -> list[str]:
    """One line a step: who acted if there are several, label and advantage."""
    labels: Sequence[str] = view.labels or [""] * len(view.advantages)
    advantages = [f"{value:+.3f}" for value in view.advantages] or ["-"] * len(labels)
    agents = [f"{visible(agent)} " for agent in view.agents] or [""] * len(advantages)
    return [
        f"step {i}: {agent}{label + ' ' if label else ''}{advantage}"
        for i, (agent, label, advantage) in enumerate(zip(agents, labels, advantages, strict=False))
    ]


def _changed(one: Processing) -> list[str]:
    fields = msgspec.structs.asdict(one).items()
    return [f"{name} {value:g}" for name, value in fields if value != getattr(Processing(), name)]


def about_row(number: int, row: RowView) -> str:
    """What stands above a row's tokens."""
    trained = [token for token in row.tokens if token.trained]
    words = [f"row {number}: {len(row.tokens)} tokens, {len(trained)} trained", f"temperature {row.temperature:g}"]
    words += _changed(row.processing)
    if trained:
        versions = sorted({token.version for token in trained})
        words.append(f"version{'s' * (len(versions) > 1)} {', '.join(map(str, versions))}")
        lows, highs = {token.clip_low for token in trained}, {token.clip_high for token in trained}
        words.append(f"clip {_ratio(lows, -1)} to {_ratio(highs, 1)}")
    if row.weight not in (0.0, 1.0):
        words.append(f"{row.weight:.0%} of its trajectory")
    if row.guided:
        words.append(f"experience at {row.hint[0]}-{row.hint[1]}, cut out" if row.hint else "guided")
    if row.reason:
        words.append(f"LEFT OUT: {row.reason}")
    return ", ".join(words)


def about_batch(inspection: Inspection) -> list[str]:
    """What stands above everything."""
    what = "order's file" if inspection.kind == "order" else "packed batch"
    rows = sum(len(view.rows) for view in inspection.trajectories)
    base = f", against version {inspection.base_version}" if inspection.base_version is not None else ""
    lines = [f"{inspection.file}: {what}, {len(inspection.trajectories)} trajectories, {rows} rows{base}"]
    if inspection.order:
        lines.append(f"order {inspection.order}")
    if inspection.dropped:
        dropped = ", ".join(f"{reason} {n}" for reason, n in sorted(inspection.dropped.items()))
        lines.append(f"left out: {dropped}")
    if inspection.figures:
        lines.append(", ".join(f"{name} {value:.4g}" for name, value in sorted(inspection.figures.items())))
    return [*lines, *(f"note: {note}" for note in inspection.notes)]


def _ratio(bounds: set[float], sign: int) -> str:
    return "/".join(f"{1 + sign * bound:.2f}" for bound in sorted(bounds))
