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

from actors.messages.spool import RawExchange, decode_spooled
from daemon.tap.spool_reader import SpoolReader
from tests.clients.catalogue import Client, Run
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
PATIENCE = 600.0
"""Seconds for all clients together; two loaded cores take about 60."""
_IDS = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERVER = re.compile(r"127\.0\.0\.1:\d+")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?")


class ClientsMissing(RuntimeError):
    """The clients' environments are not there."""


def environment(home: Path) -> dict[str, str]:
    """What a client may see of this machine's environment: no proxy, no key, no setting of ours."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
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
    with _process([sys.executable, "-m", "tests.clients.engine.server", "--port", str(port)], log):
        url = f"http://127.0.0.1:{port}"
        _wait(f"{url}/health", log)
        yield url


@contextlib.contextmanager
def tap(upstream: str, directory: Path, **settings: object) -> Iterator[str]:
    """`evolved tap` before `upstream`, with its spool in `directory`; gives its URL."""
    port, admin = free_port(), free_port()
    directory.mkdir(parents=True)
    told = {"port": port, "admin_port": admin, "upstream": upstream, "spool_dir": str(directory / "spool"), **settings}
    config = directory / "config.toml"
    config.write_text("[tap]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items()))
    log = directory / "tap.log"
    with _process([sys.executable, "-m", "daemon.cli", "tap", "--config", str(config)], log):
        _wait(f"http://127.0.0.1:{admin}/healthz", log)
        yield f"http://127.0.0.1:{port}"


def given(engine: str) -> dict[str, dict[str, Any]]:
    """The truth by response id: the key that it went to, and its token ids."""
    return {each["response_id"]: each for each in httpx.get(f"{engine}/given", timeout=10.0).json()}


def spooled(directory: Path, wanted: int, seconds: float = 10.0) -> list[RawExchange]:
    """What the tap kept: `wanted` records, and no more than those."""
    reader, found = SpoolReader(directory / "spool"), []
    end = time.monotonic() + seconds
    while len(found) < wanted and time.monotonic() < end:
        found += [decode_spooled(record.payload) for record in reader.read()]
        time.sleep(0.02)
    assert len(found) == wanted, f"{len(found)} records in the spool for {wanted} calls"
    return [record for record in found if isinstance(record, RawExchange)]


def work(clients: Sequence[Client], runs: Sequence[Run], url: str, directory: Path) -> dict[str, Any]:
    """Let all clients make their `runs` at once, against the server at `url`; what each run got, by key.

    Raises:
        ClientsMissing: see `make clients`.
        RuntimeError: a program failed, or was not done in time; says what it said last.
    """
    directory.mkdir(parents=True, exist_ok=True)
    started: list[tuple[Client, subprocess.Popen[bytes]]] = []
    results: dict[str, Any] = {}
    try:
        for client in clients:
            own = [[run.key, run.script, run.streamed] for run in runs if run.client == client.name]
            if own:
                started.append((client, _start(client, own, url, directory)))
        end = time.monotonic() + PATIENCE
        for client, process in started:
            code = process.wait(max(0.1, end - time.monotonic()))
            if code:
                raise RuntimeError(f"{client.name} ended with {code}: {_tail(_out(directory, client, 'err'))}")
            results |= json.loads(_out(directory, client, "json").read_text())
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{error.cmd} was not done after {PATIENCE} s") from error
    finally:
        for _, process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    return results


def comparable(got: Any) -> str:
    """A run's result without what differs from run to run: ids, times, and where the server is."""
    text = json.dumps(got, sort_keys=True, indent=1)
    for pattern, name in ((_IDS, "<id>"), (_TIMES, "<time>"), (_SERVER, "<server>")):
        text = pattern.sub(name, text)
    return text


def _start(client: Client, own: list[list[Any]], url: str, directory: Path) -> subprocess.Popen[bytes]:
    served = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    unused = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "unused")
    env = {**environment(directory), **client.env, **served, **unused}
    command = [*client.command, json.dumps(own), str(_out(directory, client, "json"))]
    with _out(directory, client, "err").open("wb") as stderr:
        try:
            return subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
            )
        except FileNotFoundError as error:
            missing = client.command[0]
            needed = "install Node.js 20 or newer with npm, then " if missing == "node" else ""
            raise ClientsMissing(f"{client.name}: no {missing}; {needed}run `make clients`") from error


def _out(directory: Path, client: Client, kind: str) -> Path:
    return directory / f"{client.name.replace(' ', '_').replace(',', '')}.{kind}"


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:]


@contextlib.contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, log: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=1.0).status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{url} did not answer in {seconds} s: {_tail(log)}")
