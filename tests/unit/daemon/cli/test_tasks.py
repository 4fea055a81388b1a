"""`evolved tasks` makes tasks without a daemon, into a file that survives whatever ends the run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from actors.tasks.questioner.state import read
from daemon.cli.main import main
from tests.support.patience import wait_until


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["tasks", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tasks_are_generated_listed_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "tasks.json")
    found = figures(capsys, "generate", "travel", "--count", "12", "--out", path)
    assert (found["kept"], found["ended"]) == (12, "complete")
    assert found["proposed"] == 12 + sum(found["dropped"].values())
    assert found["replays"] == found["replayed"] == 12
    listed = figures(capsys, "list", path)
    assert listed["figures"]["kept"] == len(listed["tasks"]) == 12
    first = listed["tasks"][0]
    assert figures(capsys, "show", path, first["id"][:12])["goal"] == first["goal"]
    assert "finish" in figures(capsys, "show", path)["tools"]
    for arguments in (["list", path], ["list", path, "--dropped"], ["show", path, first["id"]]):
        assert main(["tasks", *arguments]) == 0
    assert first["goal"] in capsys.readouterr().out


def test_a_file_is_continued_only_when_asked_and_as_it_was_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "tasks.json")
    figures(capsys, "generate", "travel", "--count", "3", "--out", path)
    assert main(["tasks", "generate", "travel", "--count", "5", "--out", path]) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert main(["tasks", "generate", "travel", "--count", "5", "--out", path, "--resume", "--seed", "1"]) == 2
    assert "made with other settings" in capsys.readouterr().err
    assert figures(capsys, "generate", "travel", "--count", "5", "--out", path, "--resume")["kept"] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "trave1", "--out", "{}/t.json"], "did you mean travel?"),
        (["generate", "travel", "--out", "{}/none/t.json"], "there is no directory"),
        (["generate", "travel", "--out", "{}/t.json", "--count", "0"], "--count must be 1 or more"),
        (["generate", "travel", "--out", "{}/t.json", "--llm"], "wording.name is empty"),
        (["--set", "questioner.families=X", "generate", "travel", "--out", "{}/t.json"], "has no family 'X'"),
        (["list", "{}/none.json"], "No such file"),
        (["list", "{}/other.json"], "is no file of tasks"),
        (["show", "{}/other.json"], "is no file of tasks"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_remedy(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "other.json").write_text('{"format": 2}')
    assert main(["tasks", *(text.format(tmp_path) for text in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_settings_choose_the_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    chosen = ["--set", "questioner.prefer.difficulty=[3]", "--set", 'questioner.prefer.wording="learned"']
    path = str(tmp_path / "tasks.json")
    assert main(["tasks", *chosen, "generate", "travel", "--count", "3", "--out", path, "--json"]) == 0
    capsys.readouterr()
    assert {task.difficulty for task in read(Path(path)).tasks} == {0.7}


def test_a_run_that_is_killed_goes_on_from_its_last_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
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
    assert cut.ended == ""
    kept = len(cut.tasks)
    found = figures(capsys, "generate", "travel", "--count", str(kept + 5), "--out", str(path), "--resume")
    assert found["kept"] == kept + 5
    assert found["worlds"] > cut.round
    assert [task.id for task in read(path).tasks[:kept]] == [task.id for task in cut.tasks]
