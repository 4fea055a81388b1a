"""What commands print: one document of JSON when asked for, and lines that awk can cut where no person looks."""

import io
import json
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import daemon.cli.control_client
from daemon.cli.examples import subcommands
from daemon.cli.main import parser
from daemon.cli.output import OutputTable, coloured, screen
from tests.unit.daemon.cli.conftest import Evolved
from tests.unit.daemon.cli.test_main import PRINTS_NO_TABLE

LESSON = {
    "id": "l1", "tenant": "acme", "kind": "do", "state": "active", "reason": "", "origin": "judge",
    "when_to_use": "a flight\tis booked  twice", "content": "look first\nthen [book]", "detail": {}, "guided": [4, 3],
    "unguided": [4, 1],
}  # fmt: skip
HEARD = {"lesson": LESSON, "score": 0.5}
API = {
    "name": "crm", "kind": "openapi", "origin": "control", "mode": "shadow", "tools": 2, "ok": True, "error": "",
    "last_success": 9.0, "last_failure": None, "where": "https://crm.example/" + "a" * 200,
}  # fmt: skip
GONE = {
    "dry_run": False, "trajectories": 1, "exchanges": 2, "feedback": 0, "lessons": ["l1"], "batches": 1, "folded": True,
    "versions": [{"version": 3, "trajectories": 1, "engines": ["serving"]}], "unanswered": [],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/api/status": {
        "success": {"rate": 0.5, "n": 4, "low": 0.2, "high": 0.8}, "serving": {"version": 3}, "trained": 4,
        "frozen": False, "shares": {"production": 1.0, "sandbox": 0.0}, "counts": {"exchanges": 7},
        "actors": [
            {"name": "curator", "status": "ready", "restarts": 0, "note": "", "last_error": "no [/such] file" * 30}
        ],
    },
    "/api/adapters": {
        "adapters": [API], "installed": [{"name": "travel", "kind": "environment", "at": "adapters"}], "adapter": API,
        "tools": [{"name": "list_invoices", "claims_read_only": True, "description": "Lists them. " * 40}],
        "removed": "crm",
    },
    "/api/experience/forget": GONE,
    "/api/experience/import": {
        "lessons": 2, "added": 1, "quarantined": 0, "known": 1, "forgotten": 0, "dry_run": False
    },
    "/api/experience/export": '{"count": 0, "sha256": "x"}\n',
    "/api/experience": {
        **LESSON, **HEARD, "added": True, "sources": [], "revision": 2, "items": [HEARD],
        "revisions": [{"revision": 1, "updated": 5.0, "state": "candidate", "reason": "drawn\nfrom t1"}],
    },
    "": {"details": {"version": "3", "from": "4", "to": "3"}},
}  # fmt: skip
"""By the beginning of a path: what the control API answers, with what makes columns hard to keep apart."""

OURS = ("/api/experience/forget", "/api/experience/export", "")
"""They hold nobody's words but the daemon's."""
COMMANDS = (
    "plan --model 7b", "promote 3", "rollback --reason x", "freeze", "thaw", "status", "history", "why 1",
    "audit verify", "provenance show", "keys list", "config", "forget --tenant acme --reason x --yes",
    "db status", "db check", "db backup {tmp}/made-{number}", "install --system --dry-run --root {tmp}/root",
    "environments list", "adapters list", "adapters remove crm", "adapters test crm",
    "adapters add crm --kind openapi --url https://crm.example", "experience list", "experience search book",
    "experience show l1", "experience add --when a --content b", "experience activate l1 --reason x",
    "experience retire l1 --reason x", "experience release l1 --reason x", "experience import {tmp}/lessons.jsonl",
)  # fmt: skip
"""Each prints something, with and without --json."""
ELSEWHERE = {
    ("demo",), ("doctor",), ("import",), ("db", "restore"), ("eval",), ("tasks", "generate"),
    ("environments", "check"), ("experience", "export"),
}  # fmt: skip
"""What would take another process, or too long: in test_main.py, how they fail."""

HOSTILE = "[/x] [bold fell [red] :warning: \x1b[2J"
IN_NO_PIPE = re.compile("[\t\x1b\N{BOX DRAWINGS LIGHT HORIZONTAL}-\N{BOX DRAWINGS HEAVY DOUBLE DASH VERTICAL}…]")


def hostile(told: Any) -> Any:
    """`told`, each of its texts with one behind it that is markup in rich's language, and moves a cursor."""
    match told:
        case str():
            return f"{told} {HOSTILE}"
        case dict():
            return {name: hostile(value) for name, value in told.items()}
        case list():
            return [hostile(value) for value in told]
        case _:
            return told


@pytest.fixture
def answering(versions: Evolved, monkeypatch: pytest.MonkeyPatch) -> Evolved:
    """The command line, over a store with two versions and a control API that answers as in `ANSWERS`."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        start = next(start for start in ANSWERS if path.startswith(start))
        found = ANSWERS[start] if start in OURS else hostile(ANSWERS[start])
        if (path == "/api/experience" and request.method == "GET") or path.endswith("/search"):
            found = [hostile(HEARD)]
        return httpx.Response(200, text=found) if isinstance(found, str) else httpx.Response(200, json=found)

    def client(settings: Any, timeout: float) -> httpx.Client:
        del settings, timeout
        return httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(answer))

    monkeypatch.setattr(daemon.cli.control_client, "control_client", client)
    monkeypatch.setattr("daemon.cli.status.control_client", client)
    (versions.directory / "lessons.jsonl").write_text("{}\n")
    versions(f"keys add --tenant acme --note '{HOSTILE}'")
    return versions


def test_every_subcommand_that_prints_a_table_is_tried_here() -> None:
    found = list(subcommands(parser()))
    paths = [path for path, command, _ in found if "--json" in command.format_help()]
    leaves = {path for path in paths if not any(other[: len(path)] == path != other for other, _, _ in found)}
    tried = {path for path in leaves for command in COMMANDS if tuple(command.split())[: len(path)] == path}
    assert leaves - tried == ELSEWHERE
    assert not PRINTS_NO_TABLE & leaves


@pytest.mark.parametrize("terminal", [False, True])
def test_json_is_one_document_and_other_peoples_words_are_printed_as_they_were_written(
    answering: Evolved, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    if terminal:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", "4000")
    else:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.prefix", "/opt/evolved")
    for command in COMMANDS:
        answering.json(command.format(tmp=answering.directory, number=1))
        told = answering(command.format(tmp=answering.directory, number=2)).out
        assert told.strip(), command
        assert "\x1b[2J" not in told, command
        assert terminal or not IN_NO_PIPE.search(told), command
        # An import prints no text that is not ours.
        if command.split()[0] in ("status", "adapters", "experience", "keys") and "import" not in command:
            assert "[/x] [bold fell [red] :warning:" in told, (command, told)


def table() -> OutputTable:
    made = OutputTable("version", "reason", "served", title="what\nbecame")
    made.add_row("v3", coloured("fell", "red"), "a  b\tc\nd")
    made.add_row("v12", "", "\N{CJK UNIFIED IDEOGRAPH-4E2D} " + "x" * 200)
    made.columns[0].justify = "right"
    return made


def test_in_a_pipe_each_row_is_one_line_of_aligned_cells() -> None:
    out = io.StringIO()
    screen(out).print(table())
    assert out.getvalue().splitlines() == [
        "what; became",
        "version  reason  served",
        "     v3  fell    a b c; d",
        "    v12  -       \N{CJK UNIFIED IDEOGRAPH-4E2D} " + "x" * 200,
    ]


@pytest.mark.parametrize("columns", [40, 90])
def test_on_a_terminal_a_table_keeps_to_its_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        console = screen(terminal)
        assert console.width == columns
        with console.capture() as captured:
            console.print(table())
    lines = re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).splitlines()
    assert "─" in "".join(lines) or "━" in "".join(lines)
    assert max(map(len, lines)) <= columns
    open(ours, "rb").close()


def test_logs_of_a_command_go_to_standard_error(tmp_path: Path) -> None:
    script = (
        "import sys, daemon.cli.main as m, daemon.settings.reading as c, structlog; "
        "whole = c.whole; c.whole = lambda *_: structlog.get_logger().info('loaded') or whole(*_); "
        "sys.exit(m.main(['config', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["seed"] == 0
    assert "loaded" in done.stderr
