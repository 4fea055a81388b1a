"""The command line: help that teaches, errors that name the remedy, nothing that needs a running system by accident."""

import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli.examples import subcommands
from daemon.cli.main import GROUPS, main, parser
from tests.support.ports import free_port
from tests.unit.daemon.cli.conftest import Evolved

BROKEN = {
    "a setting": ("config --set train.group=4", "did you mean train.groups?"),
    "no daemon: status": ("status --set control.listen=127.0.0.1:9", "start it with `evolved run`"),
    "no daemon: an order": ("rollback --reason x --set control.listen=127.0.0.1:9", "start it with `evolved run`"),
    "no daemon: live APIs": ("adapters --set control.listen=127.0.0.1:9 list", "start it with `evolved run`"),
    "no daemon: a broken setting elsewhere": ("freeze --config {tmp}/judge.toml", "no daemon at http://127.0.0.1:9"),
    "a key's file that is not there": ("status", "EVOLVED_KEY_FILE"),
    "a key's file without one": ("freeze", "it must hold one word; give a file that holds an admin key"),
    "no reason": ("rollback", "--reason"),
    "a mistyped command": ("statsu", "did you mean status?"),
    "a mistyped action": ("keys revok", "did you mean revoke?"),
    "a mistyped key": ("freeze --set control.lsten=9", "control.listen"),
    "a mistyped section": ("freeze --set contrl.listen=9", "control"),
    "no assignment": ("freeze --set port", "section.key"),
    "eval: environment": ("eval --env travels --json", "no environment adapter 'travels'; did you mean travel?"),
    "eval: families": ("eval --env travel --families AX", "no family 'X'; families: A, B, C, D, L"),
    "eval: engine": ("eval --env travel --engine http://127.0.0.1:{port}", "no engine answers at http://127.0.0.1:"),
    "eval: attempts": ("eval --env travel --n 0", "--n must be 1 or more"),
    "eval: tasks": ("eval --env travel --tasks 0", "--tasks must be 1 or more"),
    "eval: steps": ("eval --env travel --max-steps 0", "--max-steps must be 1 or more"),
    "plan: model": ("plan --model 8x7b", "0.5b, 1.5b, 3b, 7b, 14b"),
    "plan: GPU": ("plan --model 7b --gpu Abacus", "known are"),
    "tasks: environment": ("tasks generate trave1 --out {tmp}/t.json", "did you mean travel?"),
    "tasks: directory": ("tasks generate travel --out {tmp}/none/t.json", "there is no directory"),
    "tasks: count": ("tasks generate travel --out {tmp}/t.json --count 0", "--count must be 1 or more"),
    "tasks: wording": ("tasks generate travel --out {tmp}/t.json --llm", "llm.url is empty"),
    "tasks: families": (
        "tasks --set sandbox.families=X generate travel --out {tmp}/t.json", "has no family 'X'"
    ),
    "tasks: another's file": ("tasks generate travel --resume --out {tmp}/judge.toml", "is no file of tasks"),
    "doctor: check": ("doctor --only nonsense --json", "nonsense"),
    "import: no file": ("import {tmp}/missing --json", "{tmp}/missing"),
    "restore: no file": ("db restore {tmp}/missing --json", "{tmp}/missing"),
    "check: environment": ("environments check nonsense --json", "nonsense"),
    "export: no daemon": (
        "experience export --out {tmp}/x --json --set control.listen=127.0.0.1:9", "start it with `evolved run`"
    ),
    "db: no database": ("db status --set state_dir={tmp}", "{tmp}/evolved.db is damaged: file is not a database"),
    **{f"demo: {wrong} of feedback": (f"demo --feedback {wrong}", wrong) for wrong in ("1.5", "-0.1", "nan", "some")},
    **{f"demo: a delay of {wrong}": (f"demo --delay {wrong}", "seconds") for wrong in ("-1", "inf", "nan")},
    "demo: travellers who come back": ("demo --follow-ups", "--world service"),
    "history: no store": ("history --set state_dir={tmp}/nowhere", "no store at"),
    "trust: no key": ("provenance trust learner --set state_dir={tmp}", "which key?"),
}  # fmt: skip
"""By what is wrong: the command, and what is said of it on standard error. Each ends with 2."""
KEY_FILES = {"a key's file that is not there": "none", "a key's file without one": "judge.toml"}
PRINTS_NO_TABLE = {
    ("tap",), ("run",), ("broker",), ("engine",), ("learner",), ("learner", "inspect"), ("keys", "add"),
    ("keys", "revoke"), ("export",), ("environments", "serve"), ("experience", "mcp"), ("tools", "mcp"),
}  # fmt: skip
"""Services, and what prints a key, JSONL or JSON already."""


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_done_ends_with_2_and_names_the_remedy(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOLVED_KEY_FILE", str(tmp_path / KEY_FILES[case]) if case in KEY_FILES else "")
    (tmp_path / "judge.toml").write_text('[judge]\nnonsense = 1\n[control]\nlisten = "127.0.0.1:9"\n')
    (tmp_path / "evolved.db").write_text("no database, whatever its name says\n" * 100)
    words, said = BROKEN[case]
    try:
        status = main(words.format(tmp=tmp_path, port=free_port()).split())
    except SystemExit as ended:
        status = ended.code
    told = capsys.readouterr()
    assert (status, told.out) == (2, "")
    assert said.format(tmp=tmp_path) in told.err
    assert said.startswith("no daemon") or not case.startswith("a mistyped") or "no daemon" not in told.err


def test_the_settings_file_may_be_named_once_for_all_commands(evolved: Evolved) -> None:
    other = evolved.directory / "other.toml"
    other.write_text("seed = 12\n")
    (evolved.directory / "config.toml").write_text("seed = 4711\n")
    for words, seed in (("", 4711), (f"--config {other}", 12), ("--set seed=3", 3)):
        assert evolved.json(f"config {words}")["seed"] == seed


HEAVY = {
    "actors", "adapters", "faiss", "numpy", "opentelemetry", "phonenumbers", "sqlalchemy", "starlette", "structlog",
}  # fmt: skip
"""What no order needs; together they take more than a second of CPU. (httpx brings rich and trio along.)"""


@pytest.mark.parametrize("words", [["freeze"], ["thaw"], ["rollback", "--reason", "x"]])
def test_an_order_in_an_emergency_imports_what_it_needs_and_no_more(words: list[str]) -> None:
    script = (
        "import sys; from daemon.cli.main import main; done = main(sys.argv[1:]); "
        "print(done, *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    given = [sys.executable, "-c", script, *words, "--set", "control.listen=127.0.0.1:9"]
    told = subprocess.run(given, capture_output=True, text=True, check=True)
    status, *modules = told.stdout.split()
    assert status == "2"
    assert "no daemon at http://127.0.0.1:9" in told.stderr
    assert sorted(HEAVY & set(modules)) == []


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("evolved ")


def test_a_subcommand_alone_is_read_as_it_is_among_all() -> None:
    alone, among = parser("freeze"), parser()
    for words in (["freeze", "--reason", "x"], ["status", "--json"], ["keys", "list"]):
        assert vars(alone.parse_args(words)) == vars(among.parse_args(words))


def test_every_subcommand_has_help_with_examples_and_json_beside_its_table() -> None:
    for path, command, text in subcommands(parser()):
        assert text, path
        shown = command.format_help()  # a % that is none would raise here
        if len(path) == 1:
            assert "examples:" in (command.description or "") + (command.epilog or ""), path
        if path not in PRINTS_NO_TABLE and not any(subcommands(command)):
            assert "--json" in shown, path


def test_help_shows_every_subcommand_once_below_its_heading_and_keeps_to_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, list[str]] = {}
    for columns in ("60", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit):
            main(["--help"])
        text = capsys.readouterr().out
        commands = text.partition("\nexamples:")[0].partition("options:")[2]
        assert max(map(len, commands.splitlines())) <= int(columns)
        blocks = [block.splitlines() for block in text.split("\n\n")]
        told = {block[0]: [line.split()[0] for line in block[1:]] for block in blocks}
    for heading, names in GROUPS.items():
        assert tuple(told[f"{heading}:"]) == names
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(path[0] for path, _, _ in subcommands(parser()) if len(path) == 1)
