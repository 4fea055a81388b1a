"""The command; the package's docstring tells how it is used."""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

import tests.mutants
from tests.benchmarks import report
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.places import ROOMS, ROOT, sources
from tests.mutants.trial import Clone


class Tried(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the results."""

    room: str
    mutant: Mutant
    by: str = ""
    """The test that found it, "weather", "hang", or empty: it survived."""
    seconds: float = 0.0
    gone: bool = False
    """Its place is not there any more."""

    @property
    def verdict(self) -> str:
        return "gone" if self.gone else "found" if self.by else "survived"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; status 1 if a mutant that was found before survives now."""
    options = _options(arguments)
    clone = Clone(options.directory, options.at)
    before = list(_read(options.again)) if options.again else []
    wanted = [(row.room, row.mutant) for row in before] or _drawn(clone, options.seed, options.count, options.rooms)
    done = {row.mutant: row for row in _read(options.results)}
    sound = set[str]()
    for number, (room, mutant) in enumerate(wanted, 1):
        if mutant in done:
            continue
        if room not in sound and (failing := clone.failing(room)):
            print(f"{failing} fails without any change: mend it first, or room {room} says nothing", file=sys.stderr)
            return 2
        sound.add(room)
        found = clone.tried(room, mutant, options.weather)
        row = Tried(room, mutant, **found) if found else Tried(room, mutant, gone=True)
        done[mutant] = row
        options.results.parent.mkdir(parents=True, exist_ok=True)
        with options.results.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        print(f"{number}/{len(wanted)} {row.verdict} {room} {mutant.name}  {row.by} {row.seconds:g} s", flush=True)
    return _told([done[mutant] for _, mutant in wanted], before, clone.commit, options.json)


def _drawn(clone: Clone, seed: int, count: int, rooms: Sequence[str]) -> list[tuple[str, Mutant]]:
    """The same number from each room, in turn, so that a run that is cut short has seen all of them."""
    drawing = random.Random(seed)
    stacks: list[list[tuple[str, Mutant]]] = []
    for room in rooms:
        paths = sources(ROOMS[room], clone.tree)
        every = [(room, mutant) for path in paths for mutant in mutants(path, clone.source(path))]
        stacks.append(drawing.sample(every, min(len(every), -(-count // len(rooms)))))
    turns = [stack[at] for at in range(max(map(len, stacks))) for stack in stacks if at < len(stack)]
    return turns[:count]


def _told(rows: Sequence[Tried], before: Sequence[Tried], commit: str, path: Path | None) -> int:
    counts = Counter((row.room, row.verdict) for row in rows)
    verdicts = ("found", "survived", "gone")
    table = [
        (room, *(counts[room, verdict] for verdict in verdicts)) for room in dict.fromkeys(row.room for row in rows)
    ]
    table.append(("all", *(sum(row.verdict == verdict for row in rows) for verdict in verdicts)))
    report.table(f"Mutants at {commit[:9]}", ("room", *verdicts), table, Console(width=120))
    found = {row.mutant for row in before if row.by}
    newly = [row for row in rows if row.verdict == "survived" and row.mutant in found]
    for row in newly:
        print(f"newly survives: {row.room}: {row.mutant.name}")
    figures = {verdict: table[-1][at + 1] for at, verdict in enumerate(verdicts)} | {"newly_survived": len(newly)}
    if path:
        path.write_text(json.dumps({"name": "mutants", "commit": commit, "figures": figures}, indent=2) + "\n")
    return 1 if newly else 0


def _read(path: Path) -> Iterable[Tried]:
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line, type=Tried)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.mutants",
        description=tests.mutants.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    build = ROOT / "build"
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument(
        "--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS), metavar="ROOM", help=", ".join(ROOMS)
    )
    parser.add_argument("--weather", action="store_true", help="play a cell of the weather for what the tests miss")
    parser.add_argument("--at", default="HEAD", metavar="COMMIT", help="what is tried (HEAD)")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try the mutants of these results")
    parser.add_argument(
        "--results", type=Path, default=build / "mutants.jsonl", help="JSON lines (build/mutants.jsonl)"
    )
    parser.add_argument("--directory", type=Path, default=build / "mutants", help="of the clone (build/mutants)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the sums there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
