"""`show`: an inspected batch on a terminal, tokens coloured by their advantage."""

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from learner.inspect import Inspection, RowView
from learner.inspect_text import about_batch, about_row, about_steps, about_trajectory, runs, strength, visible

KEPT = 24
"""Tokens shown at each end of a long stretch that is not trained on."""
_STYLES = {
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
    for line in about_batch(inspection):
        console.print(Text(visible(line)))
    console.print(_legend(inspection.largest))
    for view in inspection.trajectories:
        console.print()
        console.print(Text(visible(view.id)))
        for line in (*about_trajectory(view), *about_steps(view)):
            console.print(Text(visible(line)))
        for number, row in enumerate(view.rows):
            console.print(Text(about_row(number, row), style=Style(bold=True)))
            console.print(_tokens(row, inspection.largest, full))


def _legend(largest: float) -> Text:
    text = Text("advantage ")
    for value in (-1.0, -0.5, 0.0, 0.5, 1.0):
        text.append(f" {value * largest:+.2f} ", _advantage(value * largest, largest))
    for kind, word in (("context", "context"), ("masked", "sampled, not trained on"), ("cut", "experience, cut out")):
        text.append("  ")
        text.append(word, _STYLES[kind])
    return text


def _tokens(row: RowView, largest: float, full: bool) -> Text:
    text = Text()
    for run in runs(row):
        if run.kind == "trained":
            token = run.tokens[0]
            text.append(_shown(token.text), _advantage(token.advantage, largest))
            continue
        tokens, style = run.tokens, _STYLES[run.kind]
        left_out = len(tokens) - 2 * KEPT
        if full or left_out <= KEPT:
            text.append(_shown("".join(token.text for token in tokens)), style)
        else:
            text.append(_shown("".join(token.text for token in tokens[:KEPT])), style)
            text.append(f" ... {left_out:,} tokens ... ", Style(reverse=True, dim=True))
            text.append(_shown("".join(token.text for token in tokens[-KEPT:])), style)
    return text


def _shown(text: str) -> str:
    # The line feed itself cannot be coloured.
    return visible(text).replace("\n", "↵\n")


def _advantage(value: float, largest: float) -> Style:
    if value == 0:
        return Style(bold=True)
    share = strength(value, largest)
    red, green, blue = (round(part * share) for part in (_GOOD if value > 0 else _BAD))
    return Style(color="white", bgcolor=Color.from_rgb(red, green, blue))
