"""How often each world's policy calls a tool by a name that was made at run time, when a lesson tells it.

    python -m tests.benchmarks.copying [--worlds travel service] [--attempts 96] [--json FILE]

A tool has a name that was made for it; a lesson, in a form that the rules draw, says so; attempts at held-out tasks.
Counted are those that came to call it: by the new name (`copied`), by a name that nobody gave (`garbled`), or by the
one that is gone (`old`). A lesson about a new tool works only as far as its name is copied.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
import torch

from actors.messages import Experience
from daemon.demo.worlds import WORLDS
from tests.benchmarks import report
from tests.benchmarks.drift_world import Attempt, Policy, renamed, write
from tests.warmstart.tool_names import NameKind


class Told(msgspec.Struct, frozen=True):
    """What is told about a renamed tool."""

    role: str
    families: str
    """Whose tasks need it."""
    when: str
    content: str


TOLD = {
    "travel": (Told("book", "A", "book", "search then book:{name}"),),
    "service": (
        Told("create_refund", "R", "create", "before_create:check_policy then create:{name}"),
        Told("create_refund", "R", "refund order", "call {name} instead of create_refund, which is gone"),
        Told("orders.cancel", "O", "cancel order", "call {name} instead of orders.cancel, which is gone"),
        Told("findUser", "A", "account email", "call {name} instead of findUser, which is gone"),
    ),
}
KINDS: tuple[NameKind, ...] = get_args(NameKind)
NAMES = 12
"""Of each kind, made for each lesson; the attempts are dealt out among them."""


def outcome(attempt: Attempt, name: str, role: str) -> str:
    """How the tool was called first; empty if it was not."""
    for _, calls, _ in attempt.turns:
        for call in calls:
            if call.name == name:
                return "copied"
            if call.name not in attempt.tools:
                return "old" if call.name == role else "garbled"
    return ""


def rates(world: str, kind: NameKind, attempts: int, seed: int, directory: Path | None = None) -> Counter[str]:
    """How many attempts came to call it, and how."""
    place, found = WORLDS[world], Counter[str]()
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "desk.json"
        policy, desk = Policy(world, directory or place.warm_start, seed, Path(work)), place.environment(file)
        for number, told in enumerate(TOLD[world]):
            for at in range(NAMES):
                made = renamed(world, seed, 100 * number + at, kind)[told.role]
                write(world, file, {told.role: made})
                lesson = Experience(
                    id="told", when_to_use=told.when, content=told.content.format(name=made), revision=0
                )
                tried = [
                    Attempt(desk, desk.sample(10_000 * seed + attempts * at + one, "heldout", told.families),
                            place.max_steps, [lesson])
                    for one in range(max(1, attempts // (NAMES * len(TOLD[world]))))
                ]  # fmt: skip
                policy.play(tried)
                found.update(filter(None, (outcome(attempt, made, told.role) for attempt in tried)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments((__doc__ or "").partition("\n")[0])
    parser.add_argument("--worlds", nargs="+", choices=sorted(WORLDS), default=sorted(WORLDS))
    parser.add_argument("--attempts", type=int, default=96, help="of each kind of name (96)")
    parser.add_argument("--seed", type=int, default=0, help="of names and tasks (0)")
    parser.add_argument("--model", type=Path, help="another checkpoint than the one that ships, of a single world")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for world in options.worlds:
        for kind in KINDS:
            found = rates(world, kind, options.attempts, options.seed, options.model)
            total = max(1, found.total())
            figures |= {f"{world}_{kind}_{how}": found[how] / total for how in ("copied", "garbled", "old")}
            figures[f"{world}_{kind}_calls"] = found.total()
            rows.append([f"{world}, {kind}", found.total(), *(f"{100 * found[how] / total:.0f} %"
                         for how in ("copied", "garbled", "old"))])  # fmt: skip
    report.table("Names made at run time", ["", "came to call it", "copied", "garbled", "old"], rows)
    report.write(options.json, "copying", figures, [options.seed])
    return 0


if __name__ == "__main__":
    sys.exit(main())
