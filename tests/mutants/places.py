"""The rooms whose tests are tried: what is changed, and what ought to find it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Room(NamedTuple):
    """Globs of modules, and their tests as pytest is told them, quick ones first. What is not there is left out."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "runner": Room(
        ("actors/system/runner.py", "actors/system/supervisor.py", "actors/system/runtime.py",
         "actors/system/actor.py"),
        ("tests/unit/actors/system", "tests/integration/test_runtime.py"),
    ),
    "ledger": Room(
        ("actors/store/ledger.py", "actors/store/saving.py", "actors/store/outcomes.py",
         "actors/store/waiting.py"),
        ("tests/unit/actors/store", "tests/unit/actors/system"),
    ),
    "outbox": Room(
        ("actors/system/outbox.py", "actors/system/nats_*.py", "actors/system/claim_check.py"),
        ("tests/unit/actors/system", "tests/contract/test_bus.py", "tests/integration/test_nats.py"),
    ),
    "erasing": Room(
        ("actors/store/erasing.py", "actors/store/retention.py", "actors/store/archive.py"),
        ("tests/unit/actors/store", "tests/unit/daemon/upkeep", "tests/unit/daemon/experience"),
    ),
    "redaction": Room(
        ("adapters/redaction/*.py",), ("tests/unit/adapters/redaction", "tests/integration/test_plants.py"),
    ),
    "swap": Room(
        ("adapters/engines/swap*.py", "actors/deployment/swapper.py", "actors/deployment/fleet.py",
         "daemon/upkeep/swap*.py", "daemon/composition/swap*.py"),
        ("tests/unit/actors/deployment", "tests/unit/adapters/engines", "tests/contract/test_engine.py",
         "tests/chaos/test_swap_kill.py"),
    ),
    "gate": Room(
        ("actors/gate/*.py",), ("tests/unit/actors/gate", "tests/integration/test_gate.py"),
    ),
    "watch": Room(
        ("actors/monitoring/*.py", "actors/deployment/canary.py", "actors/deployment/arms.py"),
        ("tests/unit/actors/monitoring", "tests/unit/actors/deployment"),
    ),
    "credit": Room(
        ("actors/credit/*.py", "learner/credit/*.py"), ("tests/unit/actors/credit", "tests/unit/learner"),
    ),
    "assembler": Room(
        ("actors/trajectories/*.py",), ("tests/unit/actors/trajectories", "tests/unit/adapters/intake"),
    ),
}  # fmt: skip


def sources(room: Room, tree: Path) -> Iterator[str]:
    """Paths of the room's modules in `tree`; settings are values, not behaviour."""
    found = {
        path for glob in room.sources for path in tree.glob(glob) if path.name not in ("settings.py", "__init__.py")
    }
    return (str(path.relative_to(tree)) for path in sorted(found))


def tests(room: Room, tree: Path, module: str) -> list[str]:
    """What of the room's tests is there; first those that are named for `module`."""
    there = [path for path in room.tests if (tree / path).exists()]
    own = [found for path in there for found in sorted((tree / path).glob(f"**/test_{Path(module).stem}*.py"))]
    return [*(str(path.relative_to(tree)) for path in own), *there]
