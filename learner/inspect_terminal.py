"""`show`: an inspected order on a terminal, tokens coloured by their advantage."""

import math
import unicodedata
from itertools import groupby
from typing import Literal

import msgspec
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from actors.messages import Processing
from learner.inspect import Inspection, RowView, TokenView, TrajectoryView

Kind = Literal["trained", "context", "cut", "masked"]
"""What a token is: trained on, prompt or observation, experience that is cut out, or sampled and not trained on."""
KEPT = 24
"""Tokens shown at each end of a long stretch that is not trained on."""
FAINTEST = 0.15
"""Strength of the colour of the smallest advantage, so that no trained token looks like an untrained one."""
_STYLES: dict[Kind, Style] = {
    "context": Style(dim=True),
    "masked": Style(dim=True, underline=True),
    "cut": Style(color="cyan", italic=True, strike=True),
}
_GOOD, _BAD = (0, 160, 60), (200, 30, 40)


def show(inspection: Inspection, console: Console, *, full: bool = False) -> None:
    """Print it.

    Args:
        full: also the middle of long stretches that are not trained on.
    """
    for line in _about_file(inspection):
        console.print(Text(visible(line)))
    console.print(_legend(inspection.largest))
    for view in inspection.trajectories:
        console.print()
        console.print(Text(visible(view.item.attributed.trajectory.id)))
        for line in (*_about_trajectory(view), *about_steps(view)):
            console.print(Text(visible(line)))
        for number, row in enumerate(view.rows):
            console.print(Text(_about_row(number, row), style=Style(bold=True)))
            console.print(_tokens(row, inspection.largest, full))


def visible(text: str) -> str:
    """`text` without anything that a terminal would act on: what agents and users wrote is hostile.

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


def _about_file(inspection: Inspection) -> list[str]:
    rows = sum(len(view.rows) for view in inspection.trajectories)
    lines = [
        f"{inspection.file}: {len(inspection.trajectories)} trajectories, {rows} rows, against version "
        f"{inspection.base_version}"
    ]
    if inspection.dropped:
        dropped = ", ".join(f"{reason} {n}" for reason, n in sorted(inspection.dropped.items()))
        lines.append(f"left out: {dropped}")
    lines.append(", ".join(f"{name} {value:.4g}" for name, value in sorted(inspection.figures.items())))
    return [*lines, *(f"note: {note}" for note in inspection.notes)]


def _about_trajectory(view: TrajectoryView) -> list[str]:
    run = view.item.attributed.trajectory
    words = [run.source]
    words += [f"group {run.group}"] if run.group else []
    words += [f"cluster {view.item.attributed.cluster}"] if view.item.attributed.cluster else []
    words += [f"outcome {run.outcome:g}"] if run.outcome is not None and math.isfinite(run.outcome) else []
    words += [f"{len(run.experience_ids)} lesson(s) in the prompt"] if run.experience_ids else []
    lines = [", ".join(words)]
    if run.goal:
        lines.append(f"goal: {run.goal[:200]}")
    if view.reason:
        lines.append(f"not trained on: {view.reason}")
    return lines


def about_steps(view: TrajectoryView) -> list[str]:
    """One line a step: who acted if there are several, label and advantage."""
    run = view.item.attributed.trajectory
    labels = [label.label for label in view.item.attributed.attribution.labels] or [""] * len(view.advantages)
    advantages = [f"{value:+.3f}" for value in view.advantages] or ["-"] * len(labels)
    agents = [f"{visible(step.role)} " for step in run.steps] if run.handoffs else [""] * len(advantages)
    return [
        f"step {i}: {agent}{label + ' ' if label else ''}{advantage}"
        for i, (agent, label, advantage) in enumerate(zip(agents, labels, advantages, strict=False))
    ]


def _about_row(number: int, view: RowView) -> str:
    row, trained = view.row, [token for token in view.tokens if token.trained]
    words = [f"row {number}: {len(view.tokens)} tokens, {len(trained)} trained", f"temperature {row.temperature:g}"]
    plain = Processing()
    for name, value in msgspec.structs.asdict(row.processing).items():
        words += [f"{name} {value:g}"] if value != getattr(plain, name) else []
    if trained:
        versions = sorted({token.version for token in trained})
        words.append(f"version{'s' * (len(versions) > 1)} {', '.join(map(str, versions))}")
        lows, highs = {1 - token.clip_low for token in trained}, {1 + token.clip_high for token in trained}
        words.append(f"clip {_numbers(lows)} to {_numbers(highs)}")
    if row.hint[1] > row.hint[0]:
        words.append(f"experience at {row.hint[0]}-{row.hint[1]}, cut out")
    if view.reason:
        words.append(f"LEFT OUT: {view.reason}")
    return ", ".join(words)


def _numbers(bounds: set[float]) -> str:
    return "/".join(f"{bound:.2f}" for bound in sorted(bounds))


def _legend(largest: float) -> Text:
    text = Text("advantage ")
    for value in (-1.0, -0.5, 0.0, 0.5, 1.0):
        text.append(f" {value * largest:+.2f} ", _advantage(value * largest, largest))
    words: tuple[tuple[Kind, str], ...] = (
        ("context", "context"), ("masked", "sampled, not trained on"), ("cut", "experience, cut out"),
    )  # fmt: skip
    for kind, word in words:
        text.append("  ")
        text.append(word, _STYLES[kind])
    return text


def _tokens(row: RowView, largest: float, full: bool) -> Text:
    text = Text()
    for kind, run in groupby(row.tokens, _kind):
        tokens = list(run)
        if kind == "trained":
            for token in tokens:
                text.append(_shown([token]), _advantage(token.advantage, largest))
        elif full or len(tokens) <= 3 * KEPT:
            text.append(_shown(tokens), _STYLES[kind])
        else:
            text.append(_shown(tokens[:KEPT]), _STYLES[kind])
            text.append(f" ... {len(tokens) - 2 * KEPT:,} tokens ... ", Style(reverse=True, dim=True))
            text.append(_shown(tokens[-KEPT:]), _STYLES[kind])
    return text


def _kind(token: TokenView) -> Kind:
    if token.cut:
        return "cut"
    if token.trained:
        return "trained"
    return "masked" if token.step >= 0 else "context"


def _shown(tokens: list[TokenView]) -> str:
    # The line feed itself cannot be coloured.
    return visible("".join(token.text for token in tokens)).replace("\n", "↵\n")


def _advantage(value: float, largest: float) -> Style:
    if value == 0:
        return Style(bold=True)
    share = FAINTEST + (1 - FAINTEST) * min(1.0, abs(value) / largest) if largest > 0 else FAINTEST
    red, green, blue = (round(part * share) for part in (_GOOD if value > 0 else _BAD))
    return Style(color="white", bgcolor=Color.from_rgb(red, green, blue))
