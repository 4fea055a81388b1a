"""SIGHUP to real processes: the daemon takes a good file over and keeps a bad one out; a tap serves on."""

import json
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.support.engine import running_engine
from tests.support.installation import Installation

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
                here.configure(assembler={"idle_seconds": 5.0}, rollout={"ahead": 3})
                daemon.hangup()
                daemon.until_said("config_reloaded", "assembler.idle_seconds", "rollout.ahead")
                told = json.loads(here_status(here))
                assert told["settings"]["error"] == ""
                assert told["settings"]["applied"] == ["assembler.idle_seconds"]
                assert told["settings"]["pending"] == ["rollout.ahead"]
                seen = metrics(here.ports["control"])
                assert (seen["evolved_config_reload_success"], seen["evolved_config_pending"]) == (1, 1)
                assert daemon.process.poll() is None

    def here_status(here: Installation) -> str:
        done = here.run("status", "--json")
        assert done.returncode == 0, done.stderr
        return done.stdout

    await anyio.to_thread.run_sync(walk)
