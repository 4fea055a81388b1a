"""Keys and addresses of endpoints: a key is in the environment or in a file, never in a setting, an address, a log."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from actors.ports.errors import AdapterNotSetUp


def read_key(key_env: str = "", key_file: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """The key that one of the two names; empty if neither does.

    Raises:
        AdapterNotSetUp: both are named, or what is named holds no key; the message never holds what was found.
    """
    if key_env and key_file:
        raise AdapterNotSetUp("key_env and key_file: name one of them")
    if key_env:
        where, key = f"key_env = {key_env!r}", environment.get(key_env, "").strip()
        if not key:
            raise AdapterNotSetUp(f"{where}: there is no such environment variable; set it, or name another")
    elif key_file:
        where = f"key_file = {key_file!r}"
        try:
            key = Path(key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise AdapterNotSetUp(f"{where} cannot be read: {type(error).__name__}; name a file with the key") from None
    else:
        return ""
    if not key or not key.isascii() or not key.isprintable():
        raise AdapterNotSetUp(f"{where} holds no key: one line of printable ASCII is wanted")
    return key


def checked_url(url: str) -> SplitResult:
    """`url` in its parts.

    Raises:
        ValueError: no http(s) address of a host, or it holds a password; the message does not repeat one.
    """
    told = repr(url) if "@" not in url else "(not shown: it holds an @)"
    try:
        parts = urlsplit(url)
        password, port = parts.username or parts.password, parts.port
    except ValueError:
        raise ValueError(f"url = {told} is no URL") from None
    if password:
        raise ValueError("url holds a password; take it out and name it in key_env or key_file")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"url = {told} must be http:// or https:// with a host, and end in /v1 as a rule")
    return parts
