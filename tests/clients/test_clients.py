"""Real, unmodified clients, all at once, with the same words and no ids of ours: nothing of it shows to them, and each
of their runs becomes one trajectory where ids exist, or says honestly how sure it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.messages import ids_array
from tests.clients import rig
from tests.clients.catalogue import CLIENTS, Client
from tests.clients.engine.script import REPEATED, TEXT, TOOLS, VARIED
from tests.clients.rig import Trial, planned, trial
from tests.clients.verdict import Verdict
from tests.support.answers import logprob
from tests.support.patience import within

pytestmark = pytest.mark.timeout(within(1200))
RUNS = 3
every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="session")
def engine(directory: Path) -> Iterator[str]:
    with rig.scripted_engine(directory / "engine.log") as url:
        yield url


@pytest.fixture(scope="session")
def tapped(engine: str, directory: Path) -> Trial:
    """All clients through the tap."""
    return trial(CLIENTS, RUNS, engine, directory / "tapped")


@pytest.fixture(scope="session")
def direct(engine: str, directory: Path) -> dict[str, Any]:
    """What each run gets without the tap."""
    return rig.work(CLIENTS, planned(CLIENTS, 1), engine, directory / "direct")


def rows(of: Trial, client: Client, *scripts: str) -> list[Verdict]:
    found = [one for one in of.verdicts if one.run.client == client.name and one.run.script in scripts]
    assert found or set(scripts) <= set(client.refuses)
    return found


# -- nothing shows -----------------------------------------------------------------------------------------------------


@every_client
def test_a_client_gets_what_it_gets_without_the_tap(client: Client, tapped: Trial, direct: dict[str, Any]) -> None:
    for run in planned([client], 1):
        assert rig.comparable(tapped.results[run.key]) == rig.comparable(direct[run.key]), run.key


@every_client
def test_a_run_comes_to_its_end(client: Client, tapped: Trial) -> None:
    for run in planned([client], RUNS):
        words = "The results are 5, 9, 42." if run.script in (TOOLS, REPEATED) else "You are welcome, goodbye."
        assert words in rig.comparable(tapped.results[run.key]), run.key


@pytest.mark.promise
def test_no_key_is_in_the_spool(tapped: Trial, directory: Path) -> None:
    kept = b"".join(path.read_bytes() for path in (directory / "tapped/spool").rglob("*") if path.is_file())
    assert b"You are a desk." in kept, "the search would find something"
    assert not [run.key for run in planned(CLIENTS, RUNS) if run.key.encode() in kept]


# -- stitching ---------------------------------------------------------------------------------------------------------


@every_client
def test_each_run_with_tool_calls_is_one_trajectory(client: Client, tapped: Trial) -> None:
    for row in rows(tapped, client, TOOLS):
        assert row.whole == client.whole, row
        assert row.confidence == 1.0


@every_client
def test_each_run_whose_answers_differ_is_one_trajectory_and_sure_of_it_only_by_ids(
    client: Client, tapped: Trial
) -> None:
    for row in rows(tapped, client, VARIED):
        assert row.whole, row
        assert row.confidence == (0.8 if "prefix" in row.signals else 1.0)


@every_client
def test_runs_that_nothing_tells_apart_are_never_mixed_and_say_so(client: Client, tapped: Trial) -> None:
    for row in rows(tapped, client, TEXT, REPEATED):
        assert not row.mixed, row
        assert not row.lost
        assert row.whole or row.confidence <= 0.5


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_token_ids_and_log_probs_are_the_engines_own(tapped: Trial) -> None:
    assert {exchange.endpoint for exchange in tapped.exchanges} == {client.endpoint for client in CLIENTS}
    for exchange in tapped.exchanges:
        truth = tapped.truth[exchange.response_id]
        assert ids_array(exchange.prompt_ids).tolist() == truth["prompt_ids"]
        assert ids_array(exchange.response_ids).tolist() == truth["response_ids"]
        told = [logprob(token) for token in truth["response_ids"]]
        assert np.frombuffer(exchange.logprobs, "<f4").tolist() == told


@every_client
def test_the_calls_of_a_run_train_or_say_why_not(client: Client, tapped: Trial) -> None:
    for row in rows(tapped, client, TOOLS):
        why = client.why_not
        if client.name == "litellm messages" and row.run.streamed:
            why = "3 rows"  # it writes a text of its own into answers that have none
        assert row.untrained == ((why,) if why else ()), row
