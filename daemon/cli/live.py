"""`evolved adapters`: live APIs of the running daemon, by its control API."""

import argparse
import time
from typing import Any

from daemon.cli.options import json_option, settings_options
from daemon.errors import ConfigError, ControlUnreachable

HELP = """\
Live APIs: what agents and shadow rollouts may call. They come from config.toml ([apis.NAME]), from entry points
(evolved.adapters, live.NAME), or are added here while the daemon runs: OpenAPI documents and MCP servers by address.

What is added executes nothing until you say what is known to read: the default policy is a shadow run without a list.
Look at its tools first (`evolved adapters test NAME`), then remove it and add it with --read-only.

examples:
  evolved adapters list
  evolved adapters add crm --kind openapi --url https://crm.example.com/openapi.json --key bearerAuth=crm-token
  evolved adapters add docs --kind mcp --url https://mcp.example.com/mcp --header "authorization=secret:docs-token" \\
      --read-only "search_*" --read-only get_page
  evolved adapters test docs
  evolved adapters remove docs

Secrets are files in STATE_DIR/secrets, named bare: crm-token is STATE_DIR/secrets/crm-token. They
are never sent to the daemon. Programs (MCP over stdio) and Python functions are registered in config.toml alone.
An address must be public and https, unless apis.allow_hosts lists its host.
"""


def add_adapters(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("adapters", run_adapters, "Live APIs: list, add, test and remove them while the daemon runs.")
    command.description, command.formatter_class = HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="all live APIs with their health, and all adapters that are installed")
    new = actions.add_parser("add", help="add one by its address")
    new.add_argument("name", help="a-z, 0-9, _ and -; its tools are NAME__TOOL")
    new.add_argument("--kind", required=True, choices=("openapi", "mcp"))
    new.add_argument("--url", required=True, help="of the OpenAPI document, or of the MCP server")
    new.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="mcp: sent with each request; secret:FILE"
    )
    new.add_argument(
        "--key", action="append", default=[], metavar="SCHEME=FILE", help="openapi: the secret of a security scheme"
    )
    new.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="any other option, in TOML")
    new.add_argument("--mode", choices=("live", "shadow", "dry_run"), default="shadow", help="its policy (shadow)")
    for name, text in (("read-only", "known to read: executed"), ("allow", "executed in mode live"), ("deny", "never")):
        new.add_argument(f"--{name}", action="append", default=[], metavar="PATTERN", help=f"tools that are {text}")
    tested = actions.add_parser("test", help="ask it for its tools now")
    removed = actions.add_parser("remove", help="take out one that was added here")
    for one in (tested, removed):
        one.add_argument("name")
    json_option(listed, new, tested, removed)
    settings_options(listed, new, tested, removed)


def run_adapters(arguments: argparse.Namespace) -> int:
    """Exit status 0."""
    action, base = arguments.action, "/api/adapters"
    if action == "list":
        found = _ask(arguments, "GET", base)
    elif action == "add":
        found = _ask(arguments, "POST", base, order(arguments))
    elif action == "test":
        found = _ask(arguments, "POST", f"{base}/{arguments.name}/test", {})
    else:
        found = _ask(arguments, "DELETE", f"{base}/{arguments.name}")
    from daemon.cli.output import print_json, screen

    if arguments.json:
        print_json(found)
    elif action == "list":
        show(found)
    elif action == "remove":
        screen().print(f"removed {found['removed']}")
    else:
        _show_tools(found)
    return 0


def order(arguments: argparse.Namespace) -> dict[str, Any]:
    """The body of `POST /api/adapters`."""
    from daemon.settings import toml

    options: dict[str, Any] = {}
    for text in arguments.option:
        options = toml.merge(options, toml.assignment(text))
    if arguments.header:
        options["headers"] = dict(_pair("--header", text) for text in arguments.header)
    if arguments.key:
        pairs = (_pair("--key", text) for text in arguments.key)
        options["auth"] = toml.merge(options.get("auth", {}), {scheme: {"key_file": file} for scheme, file in pairs})
    lists = {"read_only": arguments.read_only, "allow": arguments.allow, "deny": arguments.deny}
    policy = {"mode": arguments.mode} | {name: patterns for name, patterns in lists.items() if patterns}
    return {
        "name": arguments.name, "kind": arguments.kind, "url": arguments.url, "options": options, "policy": policy,
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """Print what `list` brings as tables."""

    from rich.text import Text

    from daemon.cli.output import OutputTable, coloured, screen

    console = screen()
    table = OutputTable("live API", "kind", "by", "mode", "tools", "state", "last success", "last error", "where")
    for one in found["adapters"]:
        state = coloured("ok", "green") if one["ok"] else coloured("broken", "red")
        if one["ok"] and one["last_success"] is None:
            state = Text("not asked yet")
        table.add_row(
            one["name"], one["kind"], one["origin"], one["mode"], str(one["tools"]), state, _time(one["last_success"]),
            f"{_time(one['last_failure'])} {one['error']}" if one["error"] else "-", one["where"],
        )  # fmt: skip
    console.print(table if found["adapters"] else "no live APIs; see evolved adapters --help")
    installed = OutputTable("installed adapter", "kind", "at")
    for one in found["installed"]:
        installed.add_row(one["name"], one["kind"], one["at"])
    console.print(installed)


def _show_tools(found: dict[str, Any]) -> None:
    from rich.table import Column

    from daemon.cli.output import OutputTable, screen

    console, one = screen(), found["adapter"]
    console.print(f"{one['name']}: {'ok' if one['ok'] else 'broken'}, {len(found['tools'])} tools, mode {one['mode']}")
    table = OutputTable("tool", "claim", Column("what it does", no_wrap=True))
    for tool in found["tools"]:
        claim = "says it reads" if tool["claims_read_only"] else "may write"
        table.add_row(tool["name"], claim, tool["description"].strip().partition("\n")[0])
    console.print(table)


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _pair(option: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip() or not value:
        raise ConfigError(f"{option} {text!r}: write NAME=VALUE")
    return name.strip(), value


def _ask(arguments: argparse.Namespace, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    import httpx

    from daemon.cli.control_client import control_client, unreachable
    from daemon.cli.status import refusal
    from daemon.live.settings import START_SECONDS
    from daemon.settings.control import control_settings

    where = control_settings(arguments.config, arguments.set)
    # The daemon waits for the API; this waits for the daemon.
    with control_client(where, START_SECONDS + 30.0) as http:
        try:
            answer = http.request(method, path, json=body)
            answer.raise_for_status()
            return dict(answer.json())
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 401:
                raise ControlUnreachable(refusal(error)) from error
            try:
                raise ControlUnreachable(str(error.response.json()["error"]["message"])) from error
            except (ValueError, KeyError, TypeError):
                raise ControlUnreachable(refusal(error)) from error
        except (httpx.HTTPError, ValueError) as error:
            raise unreachable(where, error) from error
