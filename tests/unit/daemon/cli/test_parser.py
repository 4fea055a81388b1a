"""The whole command line: every subcommand teaches, every table has JSON beside it, and a shell can complete it."""

import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli.examples import subcommands
from daemon.cli.main import GROUPS, main, parser

PRINTS_NO_TABLE = {
    ("tap",), ("run",), ("broker",), ("engine",), ("learner",), ("learner", "inspect"), ("completion",),
    ("keys", "add"),
    ("keys", "revoke"), ("export",), ("environments", "serve"), ("experience", "mcp"), ("tools", "mcp"),
}  # fmt: skip
"""Services, and what prints a key, JSONL or JSON already."""
ASKED_FOR = (
    "status", "doctor", "history", "why", "freeze", "rollback", "adapters", "tasks", "experience", "judge", "export",
    "import", "forget",
)  # fmt: skip


def test_every_subcommand_has_help_and_a_description_and_the_first_words_have_examples() -> None:
    found = list(subcommands(parser()))
    assert set(ASKED_FOR) <= {path[0] for path, _, _ in found}
    for path, command, text in found:
        assert text, path
        assert command.description, path
        command.format_help()  # a % that is none would raise here
        if len(path) == 1:
            assert "examples:" in (command.description or "") + (command.epilog or ""), path


def test_help_shows_every_subcommand_once_below_the_heading_of_its_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["--help"])
    blocks = [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]
    told = {block[0]: [line.split()[0] for line in block[1:]] for block in blocks}
    for heading, names in GROUPS.items():
        assert tuple(told[f"{heading}:"]) == names
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(path[0] for path, _, _ in subcommands(parser()) if len(path) == 1)


@pytest.mark.parametrize("columns", [60, 100])
def test_help_keeps_to_the_width_that_there_is(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = capsys.readouterr().out.partition("\nexamples:")[0].partition("options:")[2]
    assert max(map(len, commands.splitlines())) <= columns


def test_everything_that_prints_a_table_prints_json_too() -> None:
    for path, command, _ in subcommands(parser()):
        leaf = not any(True for _ in subcommands(command))
        if leaf and path not in PRINTS_NO_TABLE:
            assert "--json" in command.format_help(), path


@pytest.mark.parametrize(
    ("words", "expected"),
    [("evolved doc", ["doctor"]), ("evolved doctor --js", ["--json"]), ("evolved keys re", ["revoke"])],
)
def test_bash_completes(tmp_path: Path, words: str, expected: list[str]) -> None:
    script = tmp_path / "evolved.bash"
    made = subprocess.run(
        [sys.executable, "-m", "daemon.cli", "completion", "bash"], capture_output=True, text=True, check=True
    )  # fmt: skip
    script.write_text(made.stdout)
    typed = words.split()
    code = (
        f"source {script}; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; "
        '_shtab_evolved evolved "${COMP_WORDS[COMP_CWORD]}" ""; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert [line.strip() for line in done.stdout.splitlines()] == expected


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_get_a_script_that_knows_our_commands(shell: str) -> None:
    import shtab

    script = shtab.complete(parser(), shell=shell)
    assert "doctor" in script
    assert "rollback" in script
