"""SIGHUP to real processes: a good file is taken over, a bad one is kept out and named, and nobody loses a request."""

import json
import socket
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from actors.messages.spool import decode_spooled
from daemon.tap.spool_reader import SpoolReader
from tests.support.engine import Engine, running_engine
from tests.support.installation import Installation, Running
from tests.support.patience import until, within
from tests.support.tapping import BODY

pytestmark = pytest.mark.anyio
CALLERS, CALLS = 8, 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def engine():
    async with running_engine() as engine:
        yield engine


def metrics(port: int) -> dict[str, float]:
    lines = httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def reloads(tap: Running) -> int:
    """Times that it has read its file again."""
    said = tap.log.read_text(errors="replace")
    return said.count("config_reloaded") + said.count("config_not_reloaded")


async def started(tap: Running, port: int) -> None:
    await anyio.to_thread.run_sync(tap.until_listens, port)


async def test_the_tap_takes_over_what_it_can_and_names_what_needs_a_restart(engine: Engine, tmp_path: Path) -> None:
    here = Installation(tmp_path, tap={"upstream": f"http://127.0.0.1:{engine.port}"})
    notify = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.settimeout(within())
        with here.running("tap", {"NOTIFY_SOCKET": str(notify)}) as tap:
            await started(tap, here.ports["admin"])
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.ports['tap']}") as http:
                assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
                here.configure(tap={"max_body_bytes": 16, "engine": "other", "door": {"sampling": 0.0}})
                tap.hangup()
                await anyio.to_thread.run_sync(tap.until_said, "config_reloaded", "tap.max_body_bytes", "tap.engine")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.ports['tap']}") as http:
                assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 413
            seen = metrics(here.ports["admin"])
        told = [manager.recv(4096).decode()]
        while told[-1] != "STOPPING=1":
            told.append(manager.recv(4096).decode())
    assert (seen["evolved_config_reload_success"], seen["evolved_config_pending"]) == (1, 1)
    assert told[0].startswith("READY=1")
    reload = next(number for number, text in enumerate(told) if text.startswith("RELOADING=1\nMONOTONIC_USEC="))
    assert told[reload + 1] == "READY=1\nSTATUS=settings reloaded: 2 applied, 1 need a restart"


async def test_no_request_and_no_record_is_lost_while_files_good_and_bad_come(engine: Engine, tmp_path: Path) -> None:
    here = Installation(tmp_path, tap={"upstream": f"http://127.0.0.1:{engine.port}"})
    statuses: list[int] = []

    async def caller() -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.ports['tap']}", timeout=within()) as http:
            for _ in range(CALLS):
                statuses.append((await http.post("/v1/chat/completions", json=BODY)).status_code)

    async def operator() -> None:
        for number in range(6):
            good = here.file.read_text()
            if number % 3 == 2:
                here.file.write_text(f"{good}\nstate_dri = 1\n" if number % 2 else "[tap\n")
            else:
                here.configure(redaction={"enabled": bool(number % 2)}, tap={"idle_seconds": 100.0 + number})
                good = here.file.read_text()
            before = reloads(tap)
            tap.hangup()
            await until(lambda before=before: reloads(tap) > before, "the tap has read the file")
            here.file.write_text(good)

    with here.running("tap") as tap:
        await started(tap, here.ports["tap"])
        async with anyio.create_task_group() as group:
            group.start_soon(operator)
            for _ in range(CALLERS):
                group.start_soon(caller)
        tap.hangup()
        await anyio.to_thread.run_sync(tap.until_said, "config_not_reloaded")
        seen = metrics(here.ports["admin"])
    assert statuses == [200] * (CALLERS * CALLS)
    assert seen['evolved_tap_spool_shed_total{reason="memory"}'] == 0
    kept = {decode_spooled(record.payload).id for record in SpoolReader(here.config.spool).read(10_000, 1 << 30)}
    assert len(kept) == CALLERS * CALLS
    assert tap.process.returncode == 0


async def test_a_bad_file_is_kept_out_by_the_daemon_and_status_says_so(tmp_path: Path) -> None:
    here = Installation(tmp_path)

    def walk() -> None:
        with here.running("broker") as broker:
            broker.until(lambda: (here.config.state / "broker" / "credentials.json").exists())
            with here.running("run") as daemon:
                daemon.until_said("system_ready")
                good = here.file.read_text()
                here.file.write_text(good + "[assembler]\nidle_second = 5\n")
                daemon.hangup()
                daemon.until_said("config_not_reloaded", str(here.file), "did you mean assembler.idle_seconds?")
                told = json.loads(here_status(here))
                assert "assembler.idle_second;" in told["settings"]["error"]
                assert metrics(here.ports["control"])["evolved_config_reload_success"] == 0
                here.file.write_text(good)
                here.configure(assembler={"idle_seconds": 5.0}, rollout={"groups": 3})
                daemon.hangup()
                daemon.until_said("config_reloaded", "assembler.idle_seconds", "rollout.groups")
                told = json.loads(here_status(here))
                assert told["settings"]["error"] == ""
                assert told["settings"]["applied"] == ["assembler.idle_seconds"]
                assert told["settings"]["pending"] == ["rollout.groups"]
                seen = metrics(here.ports["control"])
                assert (seen["evolved_config_reload_success"], seen["evolved_config_pending"]) == (1, 1)
                assert daemon.process.poll() is None

    def here_status(here: Installation) -> str:
        done = here.run("status", "--json")
        assert done.returncode == 0, done.stderr
        return done.stdout

    await anyio.to_thread.run_sync(walk)
