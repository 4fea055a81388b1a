"""What commands print: one document of JSON when asked for, and lines that awk can cut where no person looks."""

import io
import json
import pty
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

import daemon.cli.control_client
from daemon.cli.examples import subcommands
from daemon.cli.main import main, parser
from daemon.cli.output import OutputTable, coloured, screen
from tests.unit.daemon.cli.test_history import state  # noqa: F401 - a store with two versions
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

WORDS: dict[tuple[str, ...], str] = {
    ("plan",): "--model 7b",
    ("promote",): "3", ("rollback",): "--reason x", ("freeze",): "", ("thaw",): "", ("status",): "",
    ("history",): "", ("why",): "1", ("audit",): "verify", ("provenance",): "show", ("keys", "list"): "",
    ("config",): "", ("forget",): "--tenant acme --reason x --yes",
    ("db", "status"): "", ("db", "check"): "",
    ("db", "backup"): "{tmp}/made-{number}.tar", ("install",): "--system --dry-run --root {tmp}/root",
    ("environments", "list"): "", ("adapters", "list"): "", ("adapters", "remove"): "crm", ("adapters", "test"): "crm",
    ("adapters", "add"): "crm --kind openapi --url https://crm.example",
    ("experience", "show"): "l1", ("experience", "add"): "--when a --content b",
    ("experience", "activate"): "l1 --reason x", ("experience", "retire"): "l1 --reason x",
    ("experience", "release"): "l1 --reason x",
    ("experience", "import"): "{tmp}/lessons.jsonl",
    ("experience", "list"): "", ("experience", "search"): "book",
}  # fmt: skip
"""What to write behind a subcommand so that it prints something, with and without --json."""
SAYS_NOTHING = {
    ("doctor",): "--only nonsense", ("uninstall",): "--root {tmp}/root", ("import",): "{tmp}/missing",
    ("db", "restore"): "{tmp}/missing", ("eval",): "--env nonsense",
    ("tasks", "generate"): "nonsense --out {tmp}/t.json",
    ("environments", "check"): "nonsense",
    ("experience", "export"): "--out {tmp}/none/x",
}  # fmt: skip
"""What makes a subcommand fail, where its result would take another process, or too long."""

HOSTILE = "[/x] [bold fell [red] :warning: \x1b[2J"
TELLS_NUMBERS = {("experience", "import")}
"""They print no text that is not ours."""


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Commands set logs up for a process of their own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control API answers as in `ANSWERS`."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        found = ANSWERS[next(start for start in ANSWERS if path.startswith(start))]
        if (path == "/api/experience" and request.method == "GET") or path.endswith("/search"):
            found = [HEARD]
        return httpx.Response(200, text=found) if isinstance(found, str) else httpx.Response(200, json=found)

    def client(settings: Any, timeout: float) -> httpx.Client:
        del settings, timeout
        return httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(answer))

    monkeypatch.setattr(daemon.cli.control_client, "control_client", client)
    monkeypatch.setattr("daemon.cli.status.control_client", client)


def leaves() -> list[tuple[str, ...]]:
    found = list(subcommands(parser()))
    paths = [path for path, command, _ in found if "--json" in command.format_help()]
    return [path for path in paths if not any(other[: len(path)] == path != other for other, _, _ in found)]


def words(path: tuple[str, ...], given: str, tmp: Path, number: int = 0) -> list[str]:
    return [*path, *given.format(tmp=tmp, number=number).split()]


def use(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:  # noqa: F811
    """Every command's settings name this state directory."""
    (state / "config.toml").write_text(f"state_dir = {json.dumps(str(state))}\n")
    monkeypatch.setenv("EVOLVED_CONFIG", str(state / "config.toml"))


def test_every_subcommand_that_prints_a_table_is_tried_here() -> None:
    assert {*WORDS, *SAYS_NOTHING, ("demo",)} == set(leaves())
    assert not PRINTS_NO_TABLE & (WORDS.keys() | SAYS_NOTHING.keys())


@pytest.mark.usefixtures("answering")
def test_json_is_one_document_and_a_pipe_gets_plain_lines(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("daemon.upkeep.install.program", lambda: "/opt/evolved/bin/evolved", raising=False)
    use(monkeypatch, state)
    (state / "lessons.jsonl").write_text("{}\n")
    assert main(["keys", "add", "--tenant", "acme"]) == 0
    capsys.readouterr()
    for path, given in WORDS.items():
        # 1: `db check` found something, and that is a result.
        assert main([*words(path, given, state, 1), "--json"]) in (0, 1), (path, capsys.readouterr())
        json.loads(capsys.readouterr().out)
        assert main(words(path, given, state, 2)) in (0, 1), path
        told = capsys.readouterr().out
        assert told.strip(), path
        assert not re.search(
            "[\t\x1b\N{BOX DRAWINGS LIGHT HORIZONTAL}-\N{BOX DRAWINGS HEAVY DOUBLE DASH VERTICAL}…]", told
        ), path


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


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("terminal", [False, True])
def test_other_peoples_words_are_printed_as_they_were_written(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "4000")
    use(monkeypatch, state)
    (state / "lessons.jsonl").write_text("{}\n")
    for path, answer in ANSWERS.items():
        if path != "/api/experience/export":
            monkeypatch.setitem(ANSWERS, path, hostile(answer))
    monkeypatch.setitem(globals(), "HEARD", hostile(HEARD))
    assert main(["keys", "add", "--tenant", "acme", "--note", HOSTILE]) == 0
    capsys.readouterr()
    if terminal:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for path, given in WORDS.items():
        if path[0] in ("status", "adapters", "experience") or path == ("keys", "list"):
            assert main(words(path, given, state)) == 0, path
            told = capsys.readouterr().out
            shown = "[/x] [bold fell [red] :warning:" in told
            assert shown or path in TELLS_NUMBERS, (path, told)
            assert "\x1b[2J" not in told, path


@pytest.mark.usefixtures("answering")
def test_what_fails_says_so_on_standard_error_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path)
    for path, given in SAYS_NOTHING.items():
        assert main([*words(path, given, tmp_path), "--json"]) != 0, path
        told = capsys.readouterr()
        assert (told.out, bool(told.err)) == ("", True), path


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
    import subprocess

    script = (
        "import sys, daemon.cli.main as m, daemon.settings.config as c, structlog; "
        "c.load = lambda *_: structlog.get_logger().info('loaded') or c.Config(); "
        "sys.exit(m.main(['config', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["seed"] == 0
    assert "loaded" in done.stderr
