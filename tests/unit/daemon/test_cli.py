"""The command line: help that teaches, errors that name the remedy, nothing that needs a running system by accident."""

import json

import pytest

from daemon.cli import main, parser


def test_help_shows_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    for name in (
        "tap",
        "run",
        "learner",
        "engine",
        "broker",
        "demo",
        "status",
        "freeze",
        "thaw",
        "config",
        "warmstart",
        "export",
        "import",
    ):
        assert any(line.split()[:1] == [name] for line in lines)


def test_a_wrong_setting_exits_with_2_and_names_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--set", "curator.group_per_batch=4"]) == 2
    assert "did you mean curator.groups_per_batch?" in capsys.readouterr().err


def test_status_without_a_daemon_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--set", "control.port=9"]) == 2
    assert "evolved run" in capsys.readouterr().err


def test_config_as_json_has_what_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--json", "--set", "learner.lr=1e-5"]) == 0
    assert json.loads(capsys.readouterr().out)["learner"]["lr"] == 1e-5


def test_the_demos_variants_are_options() -> None:
    arguments = parser().parse_args(["demo", "--drift", "--no-experience", "--seed", "3", "--json", "x.json"])
    assert (arguments.drift, arguments.no_experience, arguments.seed) == (True, True, 3)
