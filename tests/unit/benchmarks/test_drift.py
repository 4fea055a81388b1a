"""The drift benchmark tells what recovered from what did not, and how a name was called."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from actors.messages import ToolCall  # noqa: E402
from adapters.environments.service_desk import ServiceDesk  # noqa: E402
from daemon.demo.worlds import WORLDS  # noqa: E402
from tests.benchmarks.copying import outcome  # noqa: E402
from tests.benchmarks.drift import Link, figures_of  # noqa: E402
from tests.benchmarks.drift_world import Attempt, renamed, write  # noqa: E402

pytestmark = pytest.mark.torch


def test_names_are_made_for_each_drift_and_the_same_again() -> None:
    names = [renamed("service", seed, number) for seed in range(3) for number in range(3)]
    assert len({name for rename in names for name in rename.values()}) == 27
    assert renamed("service", 1, 2) == renamed("service", 1, 2)


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        (["lookup_order", "zokari"], "copied"),
        (["create_refund", "zokari"], "old"),
        (["zokani"], "garbled"),
        (["lookup_order"], ""),
    ],
)
def test_how_a_tool_was_called_first(called: list[str], expected: str, tmp_path: Path) -> None:
    file = tmp_path / "desk.json"
    write("service", file, {"create_refund": "zokari"})
    desk = ServiceDesk(file)
    attempt = Attempt(desk, desk.sample(0, "heldout", "R"), WORLDS["service"].max_steps)
    attempt.turns = [("", [ToolCall(name, "{}")], "") for name in called]
    assert outcome(attempt, "zokari", "create_refund") == expected


def test_what_recovered_is_told_from_what_did_not() -> None:
    links = [
        Link(seed=0, names=["a"], before=0.9, low=0.3, drawn=1.0, after=[0.5, 0.85], updates=8),
        Link(seed=1, names=["b"], before=0.9, low=0.3, drawn=0.0, after=[0.3, 0.3]),
        Link(seed=1, names=["c"], before=0.9, low=0.3, drawn=1.0),
    ]
    figures = figures_of(links)
    assert (figures["drifts"], figures["learned"], figures["recovered"]) == (3, 2, 1)
    assert figures["in_the_end_mean"] == pytest.approx(0.575)
    assert figures["updates_to_recover_mean"] == 8
    assert figures["drawn_mean"] == pytest.approx(2 / 3)
