"""`evolved tools`: find the few tools out of many that fit what somebody wants to do."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from daemon.composition.toolsearch import Catalogue

TOOLS_HELP = """\
Finds tools by what they should do: by words and by vectors (the embedder of the settings), and by which API fits.

examples:
  evolved tools search "send an invoice" --file billing.json --file mail.json
  evolved tools search "book" --set sandbox.environment=travel --k 3 --json
  evolved tools mcp --file billing.json             for an agent: search_tools as an MCP server

A file holds a JSON list of function tools (OpenAI's form) or of MCP's tools, alone or as "tools" of an object; its name
is the name of the API. Without a file the tools of sandbox.environment are searched.
"""
MCP_HELP = """\
Tool search as an MCP server with the tool search_tools. On standard input and output, as an agent's framework starts
it; with --http over streamable HTTP on this machine, at /mcp. It finds tools and calls none. Needs the extra:
pip install 'evolved[mcp]'.
"""


def add_tools(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare it, by the command line's `add`."""
    command = add("tools", _run, "Find tools by what they should do; an MCP server for agents.")
    command.description, command.formatter_class = TOOLS_HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, help=text.partition("\n")[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        settings_options(made)
        made.add_argument("--file", type=Path, action="append", default=[], metavar="FILE", help="tools; repeatable")
        return made

    search = action("search", "Tools that fit, best first.")
    search.add_argument("text", help="what is to be done now")
    search.add_argument("--goal", default="", metavar="TEXT", help="what it is all for")
    search.add_argument("--k", type=int, default=10, metavar="N", help="at most so many (10)")
    search.add_argument("--api", action="append", default=[], metavar="NAME", help="only of this API; repeatable")
    json_option(search)
    mcp = action("mcp", MCP_HELP)
    mcp.add_argument("--http", action="store_true", help="streamable HTTP instead of standard input and output")
    mcp.add_argument("--host", default="127.0.0.1", help="with --http: address on this machine (127.0.0.1)")
    mcp.add_argument("--port", type=int, default=8092, help="with --http: port (8092)")


def _run(arguments: argparse.Namespace) -> int:
    import anyio

    from daemon.composition.toolsearch import Catalogue
    from daemon.settings.config import load

    catalogue = Catalogue(load(arguments.config, arguments.set), arguments.file)
    if arguments.action == "search":
        return anyio.run(_search, arguments, catalogue)
    from daemon.api.mcp_server import run_server
    from daemon.api.toolsearch_mcp import server

    risk = "reads what your tools' documents say"
    return run_server(server(catalogue), http=arguments.http, host=arguments.host, port=arguments.port, risk=risk)


async def _search(arguments: argparse.Namespace, catalogue: "Catalogue") -> int:
    from rich.table import Column

    from daemon.cli.output import OutputTable, print_json, screen
    from daemon.composition.toolsearch import told

    await catalogue.fill()
    found = await catalogue.index.search(arguments.goal, arguments.text, arguments.k, apis=arguments.api)
    if arguments.json:
        print_json([told(one) for one in found])
        return 0
    table = OutputTable("tool", "api", Column("what it does", no_wrap=True))
    for one in found:
        table.add_row(one.shown, one.api, one.operation.description)
    none = f"none of {len(catalogue.index):,} tools fits; ask in other words"
    screen().print(table if found else none)
    return 0
