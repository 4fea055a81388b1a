"""Export and import as a user runs them: the real command line, a real broker, the real actors on an empty store."""

import gzip
import json
import random
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest

from actors.credit.attributor import Attributor
from actors.messages import Attributed, Attribution, StepLabel, Trajectory
from actors.store import Store
from actors.system.bus import Bus
from actors.system.lifecycle import Lifecycle
from actors.system.runner import drive
from actors.system.supervisor import Supervisor
from actors.trajectories.assembler import Assembler
from actors.trajectories.builder import build
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Closing
from daemon.cli.main import main
from tests.support.databases import opened_store
from tests.support.nats import opened_bus, running_broker, same_loop
from tests.support.patience import until
from tests.support.traffic import exchange, feedback

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
RUNS, STEPS = ("first", "second", "third"), 3
SECRET = "reach me at jane.doe@example.org"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Fair:
    name, rubric = "fair", "1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        return Attribution(labels=(StepLabel("GOOD"),) * len(trajectory.steps), judge=self.name, rubric=self.rubric)


def opened(state: Path) -> AbstractAsyncContextManager[Store]:
    state.mkdir(parents=True, exist_ok=True)
    return opened_store(f"sqlite:///{state}/evolved.db")


async def evolved(*arguments: str, state: Path, stdin: bytes = b"", status: int = 0, errors: bool = False) -> bytes:
    """What the command prints, or says on standard error."""
    command = [sys.executable, "-m", "daemon.cli", arguments[0], "--set", f"state_dir={state}", *arguments[1:]]
    done = await anyio.run_process(command, input=stdin, check=False, stderr=subprocess.PIPE)
    assert done.returncode == status, done.stderr.decode()
    return done.stderr if errors else done.stdout


async def work(bus: Bus, state: Path, number: int) -> dict[str, Trajectory]:
    """The daemon's actors at work on what is on the bus, until so many trajectories are judged; these."""
    supervisor = Supervisor(rng=random.Random(0))
    async with opened(state) as store, anyio.create_task_group() as group:
        assembler = Assembler(store=store, clock=time.time)
        for actor in (assembler, Attributor(judge=Fair())):

            async def task(lifecycle: Lifecycle, actor=actor) -> None:
                await drive(actor, bus, store, lifecycle, rng=random.Random(1))

            supervisor.add(actor.name, task)

        async def done() -> bool:
            return len(await store.recent_attributed()) == number

        group.start_soon(lambda: supervisor.run(signals=False))
        await until(done, "the actors are done", 120)
        group.cancel_scope.cancel()
    return await trajectories(state)


async def trajectories(state: Path) -> dict[str, Trajectory]:
    async with opened(state) as store:
        return {one.id: one.trajectory for one in await store.recent_attributed()}


async def filled(state: Path) -> None:
    """A store with three judged runs of production, and a call that nobody followed up."""
    calls = [exchange(run, number) for run in RUNS for number in range(STEPS)]
    async with opened(state) as store:
        for number, run in enumerate(RUNS):
            mine = tuple(read_turn(call) for call in calls if call.id.startswith(f"x-default-{run}-"))
            closing = Closing(turns=mine, links={}, feedback=(feedback(run, 2, number / 2),), closed_by="feedback")
            built = build(closing)
            labels = (StepLabel("BAD", 0.5, "why"),) * STEPS
            credit = Attribution(labels=labels, judge="theirs", rubric="9")
            await store.save([Attributed(id=built.run.id, trajectory=built.run, attribution=credit, cluster="c")])
            await store.save([feedback(run, 2, number / 2)])
        await store.save(calls)


async def test_trajectories_come_back_the_same_in_an_empty_store(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    await filled(there)
    wanted = await trajectories(there)
    file = tmp_path / "runs.jsonl.gz"
    await evolved("export", "--out", str(file), state=there)
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert [line["attribution"]["judge"] for line in lines] == ["theirs"] * 3
    assert file.stat().st_mode & 0o777 == 0o600
    async with running_broker(here) as broker:
        # No daemon runs yet: the broker keeps what comes, and knows what comes twice.
        for _ in range(2):
            told = json.loads(await evolved("import", "--json", "--trainable", str(file), state=here))
            assert (told["lines"], told["records"], told["bad"], told["published"]) == (3, {"trajectories": 3}, 0, 3)
        async with opened_bus(same_loop, broker, here) as bus:
            assert await work(bus, here, 3) == wanted
    assert all(len(run.rows) == 1 and run.trainable for run in wanted.values())
    assert sorted(run.outcome for run in wanted.values() if run.outcome is not None) == [0.0, 0.5, 1.0]


async def test_what_comes_from_elsewhere_is_not_trained_on_and_holds_no_secrets(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    await filled(there)
    assert main(["export", "--set", f"state_dir={there}", "--out", str(there / "out.jsonl")]) == 0
    lines = [json.loads(line) for line in (there / "out.jsonl").read_bytes().splitlines()]
    lines[0]["trajectory"]["steps"][1]["observation"] = SECRET
    stdin = b"\n".join(json.dumps(line).encode() for line in lines)
    async with running_broker(here) as broker, opened_bus(same_loop, broker, here) as bus:
        told = json.loads(await evolved("import", "--json", "--tenant", "acme", "-", state=here, stdin=stdin))
        assert told["redacted"] == {"email": 1}
        found = await work(bus, here, 3)
    assert {run.tenant for run in found.values()} == {"acme"}
    redacted = found.pop(lines[0]["id"])
    assert (redacted.rows, redacted.trainable, redacted.why_not) == ((), False, "redacted")
    assert {(run.trainable, run.why_not) for run in found.values()} == {(False, "imported")}
    assert all(b"jane.doe" not in path.read_bytes() for path in here.rglob("*") if path.is_file())


async def test_conversations_become_trajectories_and_bad_lines_are_told(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    messages = [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "add"}, {"role": "assistant", "content": "4"},
    ]  # fmt: skip
    good = json.dumps({"messages": messages, "outcome": 1.0})
    file.write_text(f"\ufeff{good}\n\nnonsense\r\n{json.dumps({'messages': messages[:1]})}\n")
    async with running_broker(tmp_path) as broker, opened_bus(same_loop, broker, tmp_path) as bus:
        told = json.loads(await evolved("import", "--json", str(file), state=tmp_path, status=1))
        said = await evolved("import", "--dry-run", str(file), state=tmp_path, status=1, errors=True)
        found = await work(bus, tmp_path, 1)
    assert (told["lines"], told["records"], told["bad"]) == (4, {"exchanges": 2, "feedback": 1}, 2)
    assert [line.partition(b":")[0] for line in said.splitlines()] == [b"line 3", b"line 4"]
    (run,) = found.values()
    assert ([step.text for step in run.steps], run.outcome, run.closed_by) == (["yes?", "4"], 1.0, "feedback")


async def test_an_export_without_a_store_or_a_time_says_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--set", f"state_dir={tmp_path}"]) == 2
    assert "name the state_dir" in capfd.readouterr().err
    assert not (tmp_path / "evolved.db").exists()
    assert main(["export", "--since", "soon"]) == 2
    assert "write 2026-05-01" in capfd.readouterr().err
