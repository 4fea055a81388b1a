"""`evolved tasks generate` makes tasks without a daemon, into a file that survives whatever ends the run; `eval`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from actors.gate.scores import summarize
from actors.tasks.questioner.state import read
from daemon.cli.evaluation import Result, as_json
from daemon.cli.main import main
from tests.support.patience import wait_until


def generated(capsys: pytest.CaptureFixture[str], path: Path, count: int, *arguments: str) -> dict[str, Any]:
    words = ["tasks", "generate", "travel", "--count", str(count), "--out", str(path), "--json", *arguments]
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


def test_tasks_are_generated_as_settings_choose_and_a_file_is_continued_as_it_was_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tasks.json"
    chosen = ("--set", "questioner.prefer.difficulty=[3]", "--set", 'questioner.prefer.wording="learned"')
    found = generated(capsys, path, 3, *chosen)
    assert (found["kept"], found["ended"]) == (3, "complete")
    assert found["proposed"] == 3 + sum(found["dropped"].values())
    assert found["replays"] == found["replayed"] == 3
    assert {task.difficulty for task in read(path).tasks} == {0.7}
    again = ["tasks", "generate", "travel", "--count", "5", "--out", str(path)]
    for more, said in (([], "--resume goes on with it"), (["--resume"], "made with other settings")):
        assert main([*again, *more]) == 2
        assert said in capsys.readouterr().err
    assert generated(capsys, path, 5, "--resume", *chosen)["kept"] == 5


def test_a_run_that_is_killed_goes_on_from_its_last_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tasks.json"
    command = [sys.executable, "-m", "daemon.cli", "tasks", "generate", "travel", "--count", "5000", "--out", str(path)]
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
    found = generated(capsys, path, kept + 5, "--resume")
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
