"""The command line: help that teaches, errors that name the remedy, nothing that needs a running system by accident."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli.main import main, parser


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


def test_an_order_without_a_daemon_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback", "--reason", "x", "--set", "control.port=9"]) == 2
    assert "start it with `evolved run`" in capsys.readouterr().err


def test_a_rollback_without_a_reason_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rollback"])
    assert "--reason" in capsys.readouterr().err


HEAVY = {"numpy", "structlog", "sqlalchemy", "starlette", "opentelemetry", "phonenumbers", "faiss"}
"""What no order needs; together they take more than a second of CPU. (httpx brings rich and trio along.)"""


@pytest.mark.parametrize("words", [["freeze"], ["thaw"], ["rollback", "--reason", "x"]])
def test_an_order_in_an_emergency_imports_what_it_needs_and_no_more(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[control]\nport = 9\n")
    script = (
        "import sys; from daemon.cli.main import main; done = main(sys.argv[1:]); "
        "print(done, *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    given = [sys.executable, "-c", script, *words, "--config", str(tmp_path / "c.toml")]
    told = subprocess.run(given, capture_output=True, text=True, check=True)
    status, *modules = told.stdout.split()
    assert status == "2"
    assert "no daemon at http://127.0.0.1:9" in told.stderr
    assert sorted(HEAVY & set(modules)) == []
    assert not {"actors", "adapters"} & set(modules)


def test_a_freeze_does_not_wait_for_another_sections_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text("[judge]\nnonsense = 1\n[control]\nport = 9\n")
    assert main(["freeze", "--config", str(tmp_path / "c.toml")]) == 2
    assert "no daemon at http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "meant"), [("control.prt=9", "control.port"), ("contrl.port=9", "control"), ("port", "section.key")]
)
def test_a_freeze_with_a_mistyped_setting_is_not_sent(
    setting: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["freeze", "--set", setting]) == 2
    told = capsys.readouterr().err
    assert meant in told
    assert "no daemon" not in told


@pytest.mark.parametrize(
    ("words", "meant"), [(["freze"], "freeze"), (["statsu"], "status"), (["keys", "revok"], "revoke")]
)
def test_a_mistyped_command_is_answered_with_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("evolved ")


def test_a_subcommand_alone_is_read_as_it_is_among_all() -> None:
    alone, among = parser("freeze"), parser()
    for words in (["freeze", "--reason", "x"], ["status", "--json"], ["keys", "list"]):
        assert vars(alone.parse_args(words)) == vars(among.parse_args(words))
