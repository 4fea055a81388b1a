"""The command line: help that teaches, errors that name the remedy, nothing that needs a running system by accident."""

import json
from pathlib import Path

import pytest

from daemon.cli.main import main, parser
from daemon.tap.replay import asked_replay
from daemon.tap.spool import SpoolLimits, SpoolWriter
from daemon.tap.spool_reader import SpoolReader


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
        "promote",
        "rollback",
        "config",
        "warmstart",
        "export",
        "import",
        "replay",
        "experience",
        "forget",
    ):
        assert any(line.split()[:1] == [name] for line in lines)


def test_a_wrong_setting_exits_with_2_and_names_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--set", "curator.group_per_batch=4"]) == 2
    assert "did you mean curator.groups_per_batch?" in capsys.readouterr().err


def test_the_settings_file_may_be_named_once_for_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text("seed = 4711\n")
    (tmp_path / "other.toml").write_text("seed = 12\n")
    monkeypatch.setenv("EVOLVED_CONFIG", str(tmp_path / "mine.toml"))
    assert main(["config"]) == 0
    assert "seed = 4711" in capsys.readouterr().out
    assert main(["config", "--config", str(tmp_path / "other.toml")]) == 0
    assert "seed = 12" in capsys.readouterr().out


def test_status_without_a_daemon_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--set", "control.port=9"]) == 2
    assert "evolved run" in capsys.readouterr().err


def test_config_as_json_has_what_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--json", "--set", "learner.lr=1e-5"]) == 0
    assert json.loads(capsys.readouterr().out)["learner"]["lr"] == 1e-5


def test_the_demos_variants_are_options() -> None:
    arguments = parser().parse_args(["demo", "--drift", "--no-experience", "--seed", "3", "--json", "x.json"])
    assert (arguments.drift, arguments.no_experience, arguments.seed) == (True, True, 3)


def test_a_replay_asks_for_what_is_kept_and_says_when_nothing_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--set", f"state_dir={tmp_path}"]
    assert main(["replay", *given]) == 2
    assert "has the tap run?" in capsys.readouterr().err
    spool = tmp_path / "spool"
    writer = SpoolWriter(spool, SpoolLimits(tick_seconds=0.001))
    writer.start()
    writer.offer(bytes(16), b"a record")
    writer.close()
    assert main(["replay", *given]) == 1
    reader = SpoolReader(spool)
    reader.commit(reader.read()[-1].after)
    capsys.readouterr()
    assert main(["replay", "--json", "--since", "1h", *given]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert (asked["segments"], asked["bytes"]) == (1, 32)
    assert asked_replay(spool) == asked["since"]


def test_an_order_without_a_daemon_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback", "--reason", "x", "--set", "control.port=9"]) == 2
    assert "start it with `evolved run`" in capsys.readouterr().err


def test_a_rollback_without_a_reason_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rollback"])
    assert "--reason" in capsys.readouterr().err
