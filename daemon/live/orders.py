"""An API that somebody wants added at run time: what of it is taken, and how its secrets are named.

Over the network come addresses only, never programs: no command to start, no function to load, no file to read, and
secrets only by the bare name of a file that the operator put into `state_dir/secrets`. An order could otherwise have
any file or variable of this machine sent to an address of its choice.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from daemon.errors import OrderRefused
from daemon.live.settings import NAME, Entry

REMOTE = {"openapi": "document", "mcp": "url"}
"""The setting that an address is, by the kinds that may be added."""
_ELSEWHERE = "register it in config.toml ([apis.NAME]) or by an entry point, where whoever starts the daemon decides"
_SECRET, _FILE = "secret:", re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCAL = {"command", "directory", "environment", "functions"}


class AddOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `POST /api/adapters` takes."""

    name: str
    kind: str
    url: str = ""
    """Of the OpenAPI document, or of the MCP server."""
    options: dict[str, Any] = {}
    policy: dict[str, Any] = {}


class CallOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `POST /api/tools/NAME/call` takes."""

    arguments: dict[str, Any] = {}


def entry(order: AddOrder, secrets: Path, *, by: str, now: float) -> Entry:
    """The registration that `order` asks for.

    Args:
        secrets: directory that secrets are named in.

    Raises:
        OrderRefused: 403 for what is never taken, 422 for what is not right.
    """
    if not NAME.fullmatch(order.name):
        raise OrderRefused(422, f"name {order.name!r}: give up to 31 of a-z, 0-9, _ and -, without two _ in a row")
    local = _LOCAL & set(order.options)
    if order.kind not in REMOTE or local:
        what = f"options.{min(local)}" if local else f"kind {order.kind!r}"
        if not local and order.kind not in ("callables", "installed", "stdio"):
            raise OrderRefused(422, f"no kind {order.kind!r}; there are {', '.join(REMOTE)}")
        raise OrderRefused(403, f"{what} runs code on this machine and is not taken here; {_ELSEWHERE}")
    if "://" not in order.url:
        raise OrderRefused(422, "url: give the address of the OpenAPI document, or of the MCP server, with https://")
    if REMOTE[order.kind] in order.options:
        raise OrderRefused(422, f"options.{REMOTE[order.kind]}: give it as url")
    options = {**_confined(order.options, secrets, ""), REMOTE[order.kind]: order.url}
    return Entry(
        name=order.name, kind=order.kind, options=options, policy=order.policy, origin="control", added=now, by=by
    )


def _confined(value: Any, secrets: Path, path: str) -> Any:
    """`value` with its named secrets as files in `secrets`."""
    if isinstance(value, Mapping):
        return {key: _setting(str(key), item, secrets, path) for key, item in value.items()}
    if isinstance(value, list):
        return [_confined(item, secrets, path) for item in value]
    if isinstance(value, str) and value.startswith(("env:", "file:")):
        raise OrderRefused(
            403, f"options{path}: {value.partition(':')[0]}: is not taken here; put the secret into a file in "
            f"{secrets} and write {_SECRET}FILE",
        )  # fmt: skip
    if isinstance(value, str) and value.startswith(_SECRET):
        return f"file:{_file(value.removeprefix(_SECRET), secrets, path)}"
    return value


def _setting(key: str, value: Any, secrets: Path, path: str) -> Any:
    path = f"{path}.{key}"
    if key == "key_env":
        raise OrderRefused(403, f"options{path} is not taken here; put the key into a file in {secrets}: key_file")
    if key == "key_file":
        return str(_file(str(value).removeprefix(_SECRET), secrets, path))
    return _confined(value, secrets, path)


def _file(name: str, secrets: Path, path: str) -> Path:
    found = secrets / name
    if not _FILE.fullmatch(name) or found.is_symlink() or not found.is_file():
        raise OrderRefused(422, f"options{path}: no secret {name!r}; name a file in {secrets}, by its bare name")
    return found.absolute()
