"""`evolved experience`: look at the pool, search it, change lessons, carry them elsewhere; by the control API."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from actors.messages.experience import ExperienceKind, ExperienceState
from daemon.cli.options import json_option, settings_options
from daemon.errors import CommandFailed

if TYPE_CHECKING:
    from daemon.experience.client import ExperienceClient

EXPERIENCE_HELP = """\
Lessons: what evolved has learned in words, when to use them, and how they fare. The daemon must run.

examples:
  evolved experience list --state active --tenant acme
  evolved experience search "cancel a booking that was paid by card" --k 3
  evolved experience show 1f0c2a...                its revisions, its sources
  evolved experience add --when "refund" --content "Look the payment up before you refund it." --reason "runbook 12"
  evolved experience retire 1f0c2a... --reason "the tool is gone"
  evolved experience release 1f0c2a... --reason "checked by hand"      out of quarantine, on trial
  evolved experience export --out lessons.jsonl
  evolved experience import lessons.jsonl --tenant acme=beta --dry-run
  evolved experience mcp                            for an agent: the pool as an MCP server

Every action takes --json. To take out what was learned from somebody: `evolved forget`.
"""
MCP_HELP = """\
The pool as an MCP server with the tools search_experience and list_skills. On standard input and
output, as an agent's framework starts it; with --http over streamable HTTP on this machine, at /mcp.

  EVOLVED_URL        the daemon's control API (http://127.0.0.1:8090)
  EVOLVED_KEY        an admin key, if the control API wants one; or
  EVOLVED_KEY_FILE   the file that holds it
  EVOLVED_TENANT     whose experience the agent sees (default)

Needs the extra: pip install 'evolved[mcp]'.
"""
IMPORT_HELP = """\
Take in what `evolved experience export` wrote. All of the file or nothing: the first bad line is named. Imported
lessons are on trial, or in quarantine if they were there or --quarantine says so; counters begin at 0, and sources
count as none until lessons are drawn here. What is here already stays as it is.
"""
_CHANGES = {
    "activate": "Put a lesson to use that is on trial or was retired.",
    "retire": "Use a lesson no longer.",
    "release": "Let a lesson out of quarantine: it is on trial then.",
}


def add_experience(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare it, by the command line's `add`."""
    command = add("experience", _run, "Lessons: list, search, add, export, import; an MCP server for agents.")
    command.description, command.formatter_class = EXPERIENCE_HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str, description: str = "") -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, help=text, description=description or text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        settings_options(made)
        if name != "mcp":
            json_option(made)
        return made

    def filters(made: argparse.ArgumentParser) -> None:
        made.add_argument("--tenant", default="", metavar="NAME", help="of this tenant alone")
        made.add_argument("--state", default="", choices=get_args(ExperienceState), help="in this state alone")
        made.add_argument("--kind", default="", choices=get_args(ExperienceKind), help="of this kind alone")

    listed = action("list", "Lessons, last changed first.")
    filters(listed)
    listed.add_argument("--query", default="", metavar="WORDS", help="that have these words in them")
    listed.add_argument("--limit", type=int, default=30, metavar="N", help="at most so many (30)")
    action("show", "One lesson: revisions and sources.").add_argument("id")

    search = action("search", "Lessons that fit what you are about to do, best first.")
    search.add_argument("text", help="the goal, or the step at hand")
    search.add_argument("--tenant", default="default", metavar="NAME", help="whose lessons (default)")
    search.add_argument("--k", type=int, default=5, metavar="N", help="at most so many (5)")
    search.add_argument("--kind", action="append", choices=get_args(ExperienceKind), help="of this kind; repeatable")
    search.add_argument(
        "--state", action="append", choices=get_args(ExperienceState), help="in this state; repeatable (active)"
    )

    made = action("add", "Add a lesson of your own; it is on trial until it has proved itself, or you activate it.")
    made.add_argument("--when", required=True, metavar="TEXT", help="when to use it")
    made.add_argument("--content", required=True, metavar="TEXT", help="what to do")
    made.add_argument("--kind", default="practice", choices=get_args(ExperienceKind), help="(practice)")
    made.add_argument("--tenant", default="default", metavar="NAME", help="whose it is (default)")
    made.add_argument("--detail", type=Path, metavar="FILE", help="JSON object with what its kind needs")
    made.add_argument("--reason", default="", help="kept with it")

    for name, text in _CHANGES.items():
        change = action(name, text)
        change.add_argument("id")
        change.add_argument("--reason", required=True, help="kept with the lesson and in the audit trail")

    export = action("export", "Write lessons as JSONL, with a header of their number and digest.")
    filters(export)
    export.add_argument("--out", default="-", metavar="FILE", help="file to write, - for standard output (-)")

    taken = action("import", "Take lessons in, all of a file or nothing.", IMPORT_HELP)
    taken.add_argument("file", metavar="FILE", help="- for standard input")
    taken.add_argument(
        "--tenant", action="append", default=[], metavar="OLD=NEW",
        help="whose they are here; NEW alone for all that no other names",
    )  # fmt: skip
    taken.add_argument("--quarantine", action="store_true", help="all begin in quarantine")
    taken.add_argument("--dry-run", action="store_true", help="check the file, take nothing in")

    mcp = action("mcp", "The pool as an MCP server for agents.", MCP_HELP)
    mcp.add_argument("--http", action="store_true", help="streamable HTTP instead of standard input and output")
    mcp.add_argument("--host", default="127.0.0.1", help="with --http: address on this machine (127.0.0.1)")
    mcp.add_argument("--port", type=int, default=8091, help="with --http: port (8091)")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.action == "mcp":
        from daemon.experience.mcp import main

        return main(http=arguments.http, host=arguments.host, port=arguments.port)
    from daemon.cli.lessons import show
    from daemon.cli.output import print_json

    with connected(arguments) as client:
        answer = _ACTIONS[arguments.action](client, arguments)
    if arguments.action == "export":
        return _write(str(answer), arguments)
    if arguments.json:
        print_json(answer)
    else:
        show(arguments.action, answer)
    return 0


def connected(arguments: argparse.Namespace, timeout: float = 60.0) -> "ExperienceClient":
    """A client of the daemon that the settings name."""
    from daemon.cli.control_client import address, control_client
    from daemon.experience.client import ExperienceClient
    from daemon.settings.control import control_settings

    control = control_settings(arguments.config, arguments.set)
    return ExperienceClient(address(control), timeout=timeout, client=control_client(control, timeout))


def _list(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    return client.lessons(tenant=given.tenant, state=given.state, kind=given.kind, q=given.query, limit=given.limit)


def _show(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    return client.lesson(given.id)


def _search(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    states = given.state or ["active"]
    return client.search(given.text, tenant=given.tenant, k=given.k, kinds=given.kind, states=states)


def _add(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    from daemon.experience.client import Call

    detail: dict[str, Any] = {}
    if given.detail is not None:
        try:
            detail = json.loads(given.detail.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommandFailed(f"--detail {given.detail}: {error}; give a file with a JSON object") from error
    body = {"when_to_use": given.when, "content": given.content, "kind": given.kind, "tenant": given.tenant}
    return client.call(Call("POST", "/api/experience", body=body | {"detail": detail, "reason": given.reason}))


def _change(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    from daemon.experience.client import changing

    return client.call(changing(given.id, given.action, given.reason))


def _export(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    from daemon.experience.client import Call

    filters = {name: getattr(given, name) for name in ("tenant", "state", "kind")}
    wanted = {name: value for name, value in filters.items() if value}
    return client.call(Call("GET", "/api/experience/export", wanted))


def _import(client: "ExperienceClient", given: argparse.Namespace) -> Any:
    from daemon.experience.client import Call

    tenants, text = _tenants(given.tenant), _text(given.file)
    body = {"text": text, "tenants": tenants, "quarantine": given.quarantine, "dry_run": given.dry_run}
    print(f"{text.count(chr(10)):,} lines to {client.url}", file=sys.stderr)
    return client.call(Call("POST", "/api/experience/import", body=body, timeout=300.0))


def _text(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandFailed(f"{name}: {error.strerror}; name a file of `evolved experience export`") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CommandFailed(f"{name}: line {line}: no UTF-8 ({error.reason}); nothing was taken in") from error


def _tenants(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        before, mark, after = text.partition("=")
        name, value = (before, after) if mark else ("*", before)
        if not name or not value or name in found:
            raise CommandFailed(f"--tenant {text!r}: write OLD=NEW, each OLD once, or NEW alone for all others")
        found[name] = value
    return found


_ACTIONS: Mapping[str, Callable[["ExperienceClient", argparse.Namespace], Any]] = {
    "list": _list, "show": _show, "search": _search, "add": _add, "export": _export,
    "import": _import, **dict.fromkeys(_CHANGES, _change),
}  # fmt: skip


def _write(text: str, arguments: argparse.Namespace) -> int:
    if arguments.out == "-":
        sys.stdout.write(text)
        return 0
    # Lessons are drawn from what agents and users said: for our own eyes alone.
    try:
        with open(os.open(arguments.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandFailed(f"{arguments.out}: {error.strerror}; name a file that can be written") from error
    header = json.loads(text.partition("\n")[0])
    told = {"file": arguments.out, "lessons": header["count"], "sha256": header["sha256"]}
    if arguments.json:
        from daemon.cli.output import print_json

        print_json(told)
    else:
        print(f"{told['lessons']:,} lessons written to {told['file']}")
    return 0
