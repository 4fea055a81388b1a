"""`evolved eval`: what it answers when it cannot measure, and how it shows what it measured."""

import json

import pytest

from actors.gate.scores import summarize
from daemon.cli.evaluation import Result, as_json
from daemon.cli.main import main
from tests.support.ports import free_port


def errors(capsys, *arguments: str) -> str:
    assert main(["eval", *arguments]) == 2
    return capsys.readouterr().err


def test_an_unknown_environment_is_named_with_the_nearest_known(capsys):
    assert "no environment adapter 'travels'; did you mean travel?" in errors(capsys, "--env", "travels")


def test_an_unknown_family_is_named_with_those_there_are(capsys):
    said = errors(capsys, "--env", "travel", "--families", "AX")
    assert "no family 'X'; families: A, B, C, D, L" in said


def test_an_engine_that_is_away_is_named_with_the_remedy(capsys):
    url = f"http://127.0.0.1:{free_port()}"
    said = errors(capsys, "--env", "travel", "--engine", url)
    assert f"no engine answers at {url}" in said
    assert "--engine" in said


@pytest.mark.parametrize("option", ["--n", "--tasks", "--max-steps"])
def test_a_number_that_makes_no_sense_is_refused(capsys, option):
    assert f"{option} must be 1 or more" in errors(capsys, "--env", "travel", option, "0")


def test_the_json_names_the_figures_by_n():
    scores = summarize([[True, False], [True, True]])
    result = Result(
        environment="travel", engine="http://x", version=3, n=2, seconds=1.0, lost=0, total=scores,
        families={"book": scores},
    )  # fmt: skip
    figures = json.loads(json.dumps(as_json(result)))
    assert figures["avg@2"]["estimate"] == 0.75
    assert figures["best@2"]["estimate"] == 1.0
    assert figures["families"]["book"]["tasks"] == 2
