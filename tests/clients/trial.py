"""One trial: all clients, all their runs at once, through a tap of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.messages import Exchange
from tests.clients import rig
from tests.clients.catalogue import Client, Run, runs
from tests.clients.engine.script import SCRIPTS
from tests.clients.verdict import Verdict, exchanges, judge


class Trial(msgspec.Struct, kw_only=True):
    """What came of it."""

    runs: list[Run]
    results: dict[str, Any]
    """What each client got, by key."""
    exchanges: list[Exchange]
    truth: dict[str, dict[str, Any]]
    """By response id: the key that the engine gave it to, and its token ids."""
    verdicts: list[Verdict]


class ClientFailed(AssertionError):
    """A run did not come to its end."""


def planned(clients: Sequence[Client], count: int) -> list[Run]:
    """The runs of a trial."""
    every = [(client, run) for client in clients for run in runs(client, count, SCRIPTS)]
    return [run for client, run in every if run.script not in client.refuses]


def trial(clients: Sequence[Client], count: int, engine: str, directory: Path) -> Trial:
    """Let the clients work, and judge what the tap kept.

    Args:
        count: runs of each client, mode and script.
        directory: of the tap; the spool is left there.

    Raises:
        ClientFailed: with the client's own words.
    """
    mine = planned(clients, count)
    before = rig.given(engine)
    with rig.tap(engine, directory) as url:
        results = rig.work(clients, mine, url, directory / "clients")
        truth = {key: value for key, value in rig.given(engine).items() if key not in before}
        seen = exchanges(rig.spooled(directory, len(truth)))
    require_success(results)
    return Trial(runs=mine, results=results, exchanges=seen, truth=truth, verdicts=judge(clients, mine, seen, truth))


def require_success(results: dict[str, Any]) -> None:
    """
    Raises:
        ClientFailed: with the client's own words.
    """
    for key, got in results.items():
        if isinstance(got, dict) and "error" in got:
            raise ClientFailed(f"{key}: {got['error'][-1500:]}")
