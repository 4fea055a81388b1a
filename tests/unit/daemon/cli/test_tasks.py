"""`evolved tasks generate` makes tasks without a daemon, into a file that survives whatever ends the run; `eval`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from actors.gate.scores import summarize
from actors.tasks.questioner.state import read
from daemon.cli.evaluation import Result, as_json
from tests.support.patience import wait_until
from tests.unit.daemon.cli.conftest import Evolved

GENERATE = "tasks generate travel --out {}/tasks.json --count {}"


def test_tasks_are_made_as_settings_choose_and_a_file_goes_on_as_it_was_begun(evolved: Evolved) -> None:
    chosen = "--set tasks.prefer.difficulty=[3] --set tasks.prefer.wording=learned"
    found = evolved.json(f"{GENERATE.format(evolved.directory, 3)} {chosen}")
    assert (found["kept"], found["ended"]) == (3, "complete")
    assert found["proposed"] == 3 + sum(found["dropped"].values())
    assert found["replays"] == found["replayed"] == 3
    assert {task.difficulty for task in read(evolved.directory / "tasks.json").tasks} == {0.7}
    again = GENERATE.format(evolved.directory, 5)
    for more, said in (("", "--resume goes on with it"), ("--resume", "made with other settings")):
        assert said in evolved(f"{again} {more}", 2).err
    assert evolved.json(f"{again} --resume {chosen}")["kept"] == 5


def test_a_run_that_is_killed_goes_on_from_its_last_world(tmp_path: Path, evolved: Evolved) -> None:
    path = tmp_path / "tasks.json"
    command = [sys.executable, "-m", "daemon.cli", *GENERATE.format(tmp_path, 5000).split()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(path.exists, "the first world is written")
        # Somewhere in the next worlds, maybe in the middle of a write.
        time.sleep(0.3)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    cut = read(path)
    kept = len(cut.tasks)
    assert cut.ended == ""
    found = evolved.json(f"{GENERATE.format(tmp_path, kept + 5)} --resume")
    assert found["kept"] == kept + 5
    assert found["worlds"] > cut.round
    assert [task.id for task in read(path).tasks[:kept]] == [task.id for task in cut.tasks]


def test_the_json_of_an_evaluation_names_the_figures_by_n() -> None:
    scores = summarize([[True, False], [True, True]])
    result = Result(
        environment="travel", engine="http://x", version=3, n=2, seconds=1.0, lost=0, total=scores,
        families={"book": scores},
    )  # fmt: skip
    figures = json.loads(json.dumps(as_json(result)))
    assert (figures["avg@2"]["estimate"], figures["best@2"]["estimate"]) == (0.75, 1.0)
    assert figures["families"]["book"]["tasks"] == 2
