"""Secrets and personal data that go through the tap are on no disk of ours afterwards: not in its spool, not in the
broker's files, not in the store, not in a log; and the token ids that are there decode to none of it.

The engine's tokens are bytes, so that ids are as readable as text. Beside the plants there is traffic that must stay;
and the same search of the same traffic with redaction switched off finds every plant.
"""

import asyncio
import contextlib
import itertools
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx
import pytest

from actors.messages import Exchange, Trajectory, decode, ids_array, steps_array
from actors.store import Store
from actors.system.runner import drive
from actors.system.supervisor import Supervisor
from actors.trajectories.assembler import Assembler
from actors.trajectories.stitching import Limits
from daemon.ingest.shipper import Shipper
from tests.support.byte_engine import (
    IN_ANSWER,
    IN_PROMPT,
    PATHS,
    Case,
    byte_engine,
    combinations,
    rendered,
    request_of,
    said_to,
)
from tests.support.engine import running_engine
from tests.support.nats import opened_bus, running_broker, same_loop
from tests.support.patience import until, within
from tests.support.plants import Plant, ordinary, plants
from tests.support.searching import files, where
from tests.support.tapping import running_tap

pytestmark = pytest.mark.promise
SEED, ROUNDS = 4711, 5
PLANTED = 240
"""Calls: most forms five times, each time with another value; each combination twice and more."""
PART = {place: "prompt" for place in IN_PROMPT} | {place: "response" for place in IN_ANSWER}
NEVER_KEPT = {"authorization": "Opensesame", "cookie": "Silverkey", "x-api-key": "Doorbell", "query": "Pinkelephant"}
"""By where it stands; no pattern knows these, so they must not be captured in the first place."""


class ByteTokenizer:
    """The engine's, without the engine: a prompt's texts, one below the other, a byte a token."""

    async def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        return list(rendered({"tools": tools or [], "messages": messages}).encode())

    async def tokenize(self, text: str) -> list[int]:
        return list(text.encode())


class Left(NamedTuple):
    """What a run left behind."""

    disks: dict[str, bytes]
    """Bytes by place: spool, broker, store."""
    exchanges: dict[str, Exchange]
    """By case."""
    runs: dict[str, Trajectory]
    """By case: none has more than one step."""


def needle(value: str) -> str:
    """What is searched for: the longest line, as line breaks are escaped once, twice or not at all."""
    return max(value.splitlines(), key=len)


def fits(plant: Plant, place: str) -> bool:
    """Whether a plant can stand at `place`: a header has one line, and the last digits of a phone number, repeated
    without what made it one, are a number as any other."""
    return not (place == "header" and "\n" in plant.text) and not (place == "bare" and "+49 30" in plant.text)


def planted(number: int) -> list[Case]:
    """`number` cases over all combinations and all known plants, mixed from a seed."""
    rng = random.Random(SEED)
    known = plants(SEED, ROUNDS)
    rng.shuffle(known)
    places = itertools.islice(itertools.cycle(combinations()), number)
    cases: list[Case] = []
    for at, (dialect, stream, place) in enumerate(places):
        plant = known.pop(next(n for n, one in enumerate(known) if fits(one, place)))
        cases.append(Case(at, dialect, stream, place, plant.text, plant.value))
    assert len({needle(case.value) for case in cases}) == number
    return cases


def controls(first: int) -> list[Case]:
    """One case for each combination, with nothing in it that is to go."""
    texts = [text for text in ordinary(SEED, 400) if text.isascii() and len(text) < 300]
    return [
        Case(first + at, *combination, f"harbour {at:03d} is quiet: {texts[at]}", f"harbour {at:03d} is quiet")
        for at, combination in enumerate(combinations())
    ]


async def told(url: str, cases: Sequence[Case], strange: Mapping[str, Any]) -> None:
    """Agents make all calls, with `strange` in each, and say of each how it went."""

    async def agent(client: httpx.AsyncClient, mine: Sequence[Case]) -> None:
        for case in mine:
            headers = {"user-agent": case.text} if case.place == "header" else {}
            with contextlib.suppress(httpx.RemoteProtocolError):
                await client.post(PATHS[case.dialect], json={**request_of(case), **strange}, headers=headers)
            if is_answered(case):
                words = case.text if case.place == "feedback" else "as it should be"
                feedback = {"response_id": case.response_id, "outcome": 1, "text": words}
                (await client.post("/v1/feedback", json=feedback)).raise_for_status()

    secret = {name: value for name, value in NEVER_KEPT.items() if name != "query"}
    query = {"key": NEVER_KEPT["query"]}
    client = httpx.AsyncClient(base_url=url, headers=secret, params=query, timeout=within())
    async with client, anyio.create_task_group() as group:
        for first in range(8):
            group.start_soon(agent, client, cases[first::8])


async def passed_through(
    directory: Path, cases: Sequence[Case], redaction: dict[str, object], strange: Mapping[str, Any]
) -> Left:
    """`cases` all the way: tap, scribe, spool, broker, assembler, store; everything is stopped in the end."""
    spool, database = directory / "spool", directory / "store" / "evolved.db"
    database.parent.mkdir()
    async with running_engine() as engine:
        engine.script = byte_engine(cases)
        async with running_tap(directory, engine.port, redaction=redaction) as rig:
            await told(rig.url, cases, strange)
    async with running_broker(directory) as broker, opened_bus(same_loop, broker, directory) as bus:
        store = Store(f"sqlite:///{database}", clock=time.time)
        await store.open()
        supervisor = Supervisor(rng=random.Random(1), drain_seconds=10)
        shipper = Shipper(spool, bus, rng=random.Random(2))
        assembler = Assembler(
            store=store, clock=time.time, serving=lambda engine, started, ended: 0,
            engine=ByteTokenizer(), limits=Limits(missing_seconds=0.1),
        )  # fmt: skip
        supervisor.add("shipper", shipper.run)
        supervisor.add("assembler", lambda lifecycle: drive(assembler, bus, store, lifecycle, rng=random.Random(3)))
        answered = sum(map(is_answered, cases))

        async def all_there() -> bool:
            return (await store.counts())["exchanges"] >= len(cases) and len(await steps_in(store)) >= answered

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: supervisor.run(signals=False))
            await until(all_there, "every call is in the store", 180)
            supervisor.drain()
        running = files(database.parent)
        runs = await steps_in(store)
        await store.aclose()
    blocks = list((directory / "broker").rglob("*.blk"))
    assert blocks
    # Only full blocks are compressed, and what is compressed cannot be searched.
    assert not [block for block in blocks if block.read_bytes()[:3] == b"cmp"]
    rows, exchanges = read_rows(database)
    disks = {
        "spool": files(spool),
        "broker": files(directory / "broker") + files(directory / "claims"),
        # The files are those of the open store, write-ahead log included. Their pages cut long values, so the rows are
        # read as well.
        "store": running + rows,
    }
    return Left(disks, {name_of(exchange): exchange for exchange in exchanges}, runs)


def name_of(exchange: Exchange) -> str:
    """The case, or the record's id where the text that named the case is gone."""
    found = re.search(rb"case-\d{4}", exchange.request)
    return found[0].decode() if found else exchange.id


def is_answered(case: Case) -> bool:
    """Whether there is a response with an id to say something of."""
    return case.place != "error" and (case.place != "broken" or case.stream)


async def steps_in(store: Store) -> dict[str, Trajectory]:
    """Closed trajectories, by the case of their step."""
    runs = await store.recent_closed(10_000)
    return {step.response_id.removeprefix("answer-"): run for run in runs for step in run.steps}


def read_rows(database: Path) -> tuple[bytes, list[Exchange]]:
    """Every value of every row, and the exchanges among them."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        values = [value for name in tables for row in db.execute(f'SELECT * FROM "{name}"') for value in row]
        bodies = [decode(body) for (body,) in db.execute("SELECT body FROM exchanges")]
    data = [value if isinstance(value, bytes) else str(value).encode() for value in values if value is not None]
    return b"\n".join(data), [body for body in bodies if isinstance(body, Exchange)]


def finds(data: bytes, cases: Sequence[Case]) -> dict[str, set[str]]:
    """How the value of a case is in `data`, by the cases of which it is; and what must not even be captured is not."""
    by_needle = {needle(case.value): case.name for case in cases}
    seen = where(data, [*by_needle, *NEVER_KEPT.values()])
    assert not seen.keys() & set(NEVER_KEPT.values())
    return {by_needle[text]: views for text, views in seen.items()}


def passed(
    directory: Path, cases: Sequence[Case], *, redaction: dict[str, object], strange: Mapping[str, Any] | None = None
) -> Left:
    return asyncio.run(passed_through(directory, cases, redaction, strange or {}))


def expected(cases: Sequence[Case]) -> set[str]:
    """The cases whose text gets everywhere if nobody takes it out: no header is kept."""
    return {case.name for case in cases if case.place != "header"}


def what_is_left_is_trained_on(left: Left, cases: Sequence[Case]) -> None:
    whys = Counter[str]()
    for case in cases:
        exchange, part = left.exchanges[case.name], PART.get(case.place)
        assert exchange.redacted[:1] == ((part,) if part else ()), case
        if part is None or not is_answered(case) or case.place == "broken":
            continue
        run_of = left.runs[case.name]
        if case.dialect != "chat":
            assert (run_of.trainable, run_of.rows) == (False, ()), case
            continue
        whys[run_of.why_not] += 1
        if run_of.trainable:
            (row,) = run_of.rows
            sampled = bytes(ids_array(row.ids)[steps_array(row.step) >= 0].astype("u1"))
            assert row.redacted, case
            assert b"[REDACTED" not in sampled, case
            assert case.name.encode() in sampled, case
            assert (row.masked > 0) == ("response" in exchange.redacted), case
    # A token is a byte here, so that a private key is most of an answer.
    assert whys.keys() <= {"", "redacted too much", "redacted response"}
    assert whys["redacted response"] <= 3
    assert whys[""] >= 0.7 * whys.total(), whys


def ordinary_runs_keep_their_own(left: Left, quiet: Sequence[Case]) -> None:
    kept = 0
    for case in quiet:
        exchange = left.exchanges[case.name]
        assert (exchange.redacted, exchange.finds) == ((), {}), case
        if case.dialect not in ("chat", "completions") or case.place in ("error", "broken"):
            continue
        prompt, response = rendered(request_of(case)).encode(), "".join(said_to(case)).encode()
        assert bytes(ids_array(exchange.prompt_ids).astype("u1")) == prompt, case
        assert bytes(ids_array(exchange.response_ids).astype("u1")) == response, case
        run_of = left.runs[case.name]
        assert run_of.trainable, (case, run_of.why_not)
        assert bytes(ids_array(run_of.rows[0].ids).astype("u1")) == prompt + response, case
        kept += 1
    assert kept > 20


def test_what_is_planted_is_nowhere_what_is_ordinary_is_everywhere_and_both_train_on_what_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases = planted(PLANTED)
    quiet = controls(PLANTED)
    left = passed(tmp_path, [*cases, *quiet], redaction={})
    logs = "".join(capfd.readouterr()).encode()
    for place, data in left.disks.items():
        assert finds(data, [*cases, *quiet]).keys() == expected(quiet), place
    assert b"tap_ended" in logs
    assert finds(logs, [*cases, *quiet]) == {}
    what_is_left_is_trained_on(left, cases)
    ordinary_runs_keep_their_own(left, quiet)


def test_strict_mode_keeps_no_word_of_anybody_and_outcomes_and_tools_are_still_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No pattern knows what is planted here: it must be gone by where it stands."""
    key = tmp_path / "placeholders.key"
    key.write_bytes(b"k" * 32)
    cases = [
        Case(at, *combination, f"Grandmother {at:04d} of Hull sings", f"Grandmother {at:04d}")
        for at, combination in enumerate(combinations())
    ]
    strange = {
        "user": "Umbrellastand", "response_format": {"type": "json_schema", "json_schema": {"name": "Windowsill"}},
        "stop": ["Candlewick"], "metadata": {"Featherbed": "Candlewick"}, "tool_choice": {"name": "Thimble 5"},
        "Umbrellastand": {"Windowsill": "Thimble"},
    }  # fmt: skip
    settings: dict[str, object] = {"strict": True, "key_file": str(key)}
    left = passed(tmp_path, cases, redaction=settings, strange=strange)
    logs = "".join(capfd.readouterr()).encode()
    words = ["Umbrellastand", "Windowsill", "Candlewick", "Featherbed", "Thimble", "Grandmother", "of Hull", "You help"]
    for place, data in {**left.disks, "logs": logs}.items():
        assert finds(data, cases) == {}, place
        assert where(data, [*words, "Writes a note", "all is well", "as it should be"]) == {}, place
    assert b"tap_ended" in logs
    runs = list(left.runs.values())
    assert len(left.exchanges) == len(cases)
    assert len(runs) == sum(map(is_answered, cases))
    assert {call.name for run_of in runs for step in run_of.steps for call in step.tool_calls} == {"note"}
    assert all((run_of.trainable, run_of.rows) == (False, ()) for run_of in runs)
    assert {run_of.outcome for run_of in runs} == {1.0}
    assert {(run_of.min_version, run_of.max_version) for run_of in runs} == {(0, 0)}
    assert {exchange.model for exchange in left.exchanges.values() if exchange.status == 200} == {"bytes"}


def test_the_same_search_finds_every_plant_when_redaction_is_off(tmp_path: Path) -> None:
    cases = planted(len(combinations()))
    left = passed(tmp_path, cases, redaction={"kinds": ()})
    for place, data in left.disks.items():
        found = finds(data, cases)
        assert found.keys() == expected(cases), place
        # Ids are found as ids: they are packed before the record touches a disk.
        with_ids = {name for name, views in found.items() if any(view.startswith("int32 at") for view in views)}
        wanted = {case.name for case in cases if case.dialect in ("chat", "completions") and case.place == "bare"}
        assert wanted <= with_ids, place
