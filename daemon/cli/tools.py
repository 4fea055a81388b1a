"""`evolved tools mcp`: lets an agent find the few tools out of many that fit what it wants to do."""

import argparse
from collections.abc import Callable
from pathlib import Path

from daemon.cli.options import settings_options

TOOLS_HELP = """\
Tool search as an MCP server with the tool search_tools: by words and by vectors (the embedder of the settings), and by
which API fits. On standard input and output, as an agent's framework starts it; with --http over streamable HTTP on
this machine, at /mcp. It finds tools and calls none. Needs the extra: pip install 'evolved[mcp]'.

examples:
  evolved tools mcp --file billing.json --file mail.json
  evolved tools mcp --set sandbox.environment=travel --http

A file holds a JSON list of function tools (OpenAI's form) or of MCP's tools, alone or as "tools" of an object; its name
is the name of the API. Without a file the tools of sandbox.environment are searched.
"""


def add_tools(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare it, by the command line's `add`."""
    command = add("tools", _run, "Tool search for agents, as an MCP server.")
    command.description, command.formatter_class = TOOLS_HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    mcp = actions.add_parser("mcp", help="serve search_tools", description="Serve search_tools.")
    settings_options(mcp)
    mcp.add_argument("--file", type=Path, action="append", default=[], metavar="FILE", help="tools; repeatable")
    mcp.add_argument("--http", action="store_true", help="streamable HTTP instead of standard input and output")
    mcp.add_argument("--host", default="127.0.0.1", help="with --http: address on this machine (127.0.0.1)")
    mcp.add_argument("--port", type=int, default=8092, help="with --http: port (8092)")


def _run(arguments: argparse.Namespace) -> int:
    from daemon.api.mcp_server import run_server
    from daemon.api.toolsearch_mcp import Catalogue, server
    from daemon.settings.reading import load

    catalogue = Catalogue(load(arguments.config, arguments.set), arguments.file)
    risk = "reads what your tools' documents say"
    return run_server(server(catalogue), http=arguments.http, host=arguments.host, port=arguments.port, risk=risk)
