"""Scripted engine, real tap, and the client programs: all of them processes of their own."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from actors.messages import Exchange, decode
from daemon.tap.spool import SpoolReader
from tests.clients.catalogue import Client, Run, runs
from tests.clients.engine.script import SCRIPTS
from tests.clients.verdict import Verdict, judge
from tests.support.patience import SLOW, wait_until, within
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.tap_process import tap_process

ROOT = Path(__file__).parents[2]
TOGETHER = 600.0
"""Seconds for all clients; two loaded cores take about 60."""
_IDS = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERVER = re.compile(r"127\.0\.0\.1:\d+")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?")


def environment(home: Path) -> dict[str, str]:
    """What a client may see of this machine's environment: no proxy, no key, no setting of ours."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR", "EVOLVED_SLOW") if name in os.environ
    }
    # What calls home of its own accord would wait for a network that may not be there.
    silent = {
        "OPENAI_AGENTS_DISABLE_TRACING": "1", "HAYSTACK_TELEMETRY_ENABLED": "False", "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    return {**kept, "HOME": str(home), **silent}


@contextlib.contextmanager
def scripted_engine(log: Path) -> Iterator[str]:
    """The scripted engine; gives its URL."""
    port = free_port()
    with Process([sys.executable, "-m", "tests.clients.engine.server", str(port)], log, cwd=ROOT) as engine:
        url = f"http://127.0.0.1:{port}"
        engine.until_answers(f"{url}/health")
        yield url


@contextlib.contextmanager
def tap(upstream: str, directory: Path, **settings: object) -> Iterator[str]:
    """A tap before `upstream`, with its spool in `directory`; gives its URL."""
    directory.mkdir(parents=True)
    with tap_process(directory, int(upstream.rpartition(":")[2]), **settings) as running:
        yield f"http://127.0.0.1:{running.port}"


def given(engine: str) -> dict[str, dict[str, Any]]:
    """The truth by response id: the key that it went to, and its token ids."""
    return {each["response_id"]: each for each in httpx.get(f"{engine}/given", timeout=within()).json()}


def spooled(directory: Path, wanted: int) -> list[Exchange]:
    """What the tap kept: `wanted` records, and no more than those."""
    reader, found = SpoolReader(directory / "spool" / "0"), []

    def read() -> bool:
        found.extend(decode(record.payload) for record in reader.read())
        return len(found) >= wanted

    wait_until(read, f"{wanted} records in the spool")
    assert len(found) == wanted
    return [record for record in found if isinstance(record, Exchange)]


def work(clients: Sequence[Client], runs: Sequence[Run], url: str, directory: Path) -> dict[str, Any]:
    """Let all clients make their `runs` at once, against the server at `url`; what each run got, by key.

    Raises:
        RuntimeError: a program or a run failed, with its own words.
        Late: one was not done.
    """
    directory.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        started: list[tuple[Client, Process]] = []
        for client in clients:
            own = [[run.key, run.script, run.streamed] for run in runs if run.client == client.name]
            if own:
                started.append((client, process := _start(client, own, url, directory)))
                stack.callback(process.kill)
        end = time.monotonic() + within(TOGETHER)
        for client, process in started:
            code = process.wait((end - time.monotonic()) / SLOW)
            if code:
                raise RuntimeError(f"{client.name} ended with {code}: {process.tail()}")
            results |= json.loads(_out(directory, client, "json").read_text())
    for key, got in results.items():
        if isinstance(got, dict) and "error" in got:
            raise RuntimeError(f"{key}: {got['error'][-1500:]}")
    return results


def comparable(got: Any) -> str:
    """A run's result without what differs from run to run: ids, times, and where the server is."""
    text = json.dumps(got, sort_keys=True, indent=1)
    for pattern, name in ((_IDS, "<id>"), (_TIMES, "<time>"), (_SERVER, "<server>")):
        text = pattern.sub(name, text)
    return text


def _start(client: Client, own: list[list[Any]], url: str, directory: Path) -> Process:
    served = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    unused = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "unused")
    env = {**environment(directory), **client.env, **served, **unused}
    command = [*client.command, json.dumps(own), str(_out(directory, client, "json"))]
    return Process(command, _out(directory, client, "err"), env=env, stdout=subprocess.DEVNULL)


def _out(directory: Path, client: Client, kind: str) -> Path:
    return directory / f"{client.name.replace(' ', '_').replace(',', '')}.{kind}"


class Trial(msgspec.Struct, kw_only=True):
    """What came of it."""

    results: dict[str, Any]
    """What each client got, by key."""
    exchanges: list[Exchange]
    truth: dict[str, dict[str, Any]]
    """By response id: the key that the engine gave it to, and its token ids."""
    verdicts: list[Verdict]


def planned(clients: Sequence[Client], count: int) -> list[Run]:
    """The runs of a trial."""
    every = [(client, run) for client in clients for run in runs(client, count, SCRIPTS)]
    return [run for client, run in every if run.script not in client.refuses]


def trial(clients: Sequence[Client], count: int, engine: str, directory: Path) -> Trial:
    """Let the clients work through a tap in `directory`, `count` runs of each client, mode and script, and judge what
    it kept.
    """
    mine = planned(clients, count)
    before = given(engine)
    with tap(engine, directory) as url:
        results = work(clients, mine, url, directory / "clients")
        truth = {key: value for key, value in given(engine).items() if key not in before}
        seen = spooled(directory, len(truth))
    return Trial(results=results, exchanges=seen, truth=truth, verdicts=judge(mine, seen, truth))
