"""Reads bytes of any origin for texts: as they stand, base64, in pieces of a stream, and as token ids, decoded."""

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_INTS = re.compile(rb'(?:"(\w+)":\s?)?\[\s?(\d{1,3}(?:,\s?\d{1,3})*)\s?\]')
_STRINGS = re.compile(rb'"(\w+)":\s?"((?:[^"\\]|\\.)*)"')
_LISTED = re.compile(rb'"tokens":\s?\[("[^\]]*")\]')
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}")
_URLSAFE = bytes.maketrans(b"-_", b"+/")
_ESCAPES = {b"\\n": b"\n", b'\\"': b'"', b"\\\\": b"\\", b"\\/": b"/", b"\\t": b"\t"}
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_PIECES = frozenset(
    {b"content", b"text", b"delta", b"arguments", b"partial_json", b"thinking", b"reasoning", b"token", b"note"}
)


def views(data: bytes) -> dict[str, bytes]:
    """`data` in every way in which a text may be in it."""
    found = {"as it stands": data}
    for first in range(4):
        # An int32 array of bytes, wherever it begins, has the text in every fourth byte.
        found[f"int32 at {first}"] = data[first::4]
    ids: dict[bytes, list[bytes]] = defaultdict(list)
    for name, listed in _INTS.findall(data):
        ids[name].append(bytes([min(255, int(one)) for one in listed.split(b",")]))
    strings: dict[bytes, list[bytes]] = defaultdict(list)
    for name, text in _STRINGS.findall(data):
        if name in _PIECES:
            strings[name].append(text)
    found |= {f"ids of {name.decode()!r}": b"".join(parts) for name, parts in ids.items()}
    found |= {f"pieces of {name.decode()!r}": _unescaped(b"".join(parts)) for name, parts in strings.items()}
    found["token texts"] = b"".join(re.sub(rb'", ?"', b"", one)[1:-1] for one in _LISTED.findall(data))
    found["escaped"] = _unescaped(_unescaped(data)) if b"\\" in data else b""
    runs = _BASE64.findall(data)
    for first in range(4):
        found[f"base64 at {first}"] = b"\n".join(_decoded(run[first:]) for run in runs)
    return found


def _unescaped(data: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[0], match[0]), data)


def _decoded(run: bytes) -> bytes:
    # Both alphabets at once: a run may hold a URL beside what is encoded.
    try:
        return base64.b64decode(run[: len(run) // 4 * 4].translate(_URLSAFE))
    except binascii.Error:
        return b""


def where(data: bytes, texts: Iterable[str]) -> dict[str, set[str]]:
    """Those of `texts` that are in `data`, and in which of its views."""
    found: dict[str, set[str]] = defaultdict(set)
    seen = views(data)
    for text in texts:
        needle = text.encode()
        for name, view in seen.items():
            if needle in view:
                found[text].add(name)
    return dict(found)


def files(directory: Path) -> bytes:
    """Every byte of every file below `directory`."""
    return b"\n".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())
