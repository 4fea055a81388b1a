"""Keys of our own: who an agent is, and who may operate. A file of digests, written by `evolved keys`, read by tap and
daemon.

    evk_4f9c02d1a7be_Zq3…          "evk_", the key's id (public: in lists and records), and 256 random bits

What is stored is the SHA-256 of the whole text. A slow hash is for secrets that people make up: nobody tries 2^256
random ones, and the tap hashes at every call. The digest is found by the id and compared in constant time; an id that
does not exist costs the same, and gets the same answer.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog

from actors.messages.files import alone_with, writing_whole
from daemon.tap.errors import KeysUnusable, Refused
from daemon.tap.key_form import PREFIX, Scope

_ID_BYTES, _SECRET_BYTES = 6, 32
_ID_END = len(PREFIX) + 2 * _ID_BYTES
_MAX_KEYS = 10_000
_SCHEMA = 2
"""1 knew the scopes agent, admin and environment."""
_NOBODY = "0" * 64
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

LADDER: tuple[Scope, ...] = ("read", "content", "operate", "admin")
"""A key of one of these opens what those before it open."""
OPERATORS = frozenset[Scope]({*LADDER, "teach"})

log = structlog.get_logger(__name__)


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key, without its secret."""

    id: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the key's text."""
    tenant: str
    scope: Scope = "agent"
    created: float
    expires: float | None = None
    """Unix seconds; none: never."""
    revoked: float | None = None
    """Unix seconds; a revoked key stays in the file, so that old records can be told."""
    note: str = ""

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int = _SCHEMA
    keys: tuple[Key, ...] = ()


_decoder = msgspec.json.Decoder(_File)


class KeyRing:
    """The keys in a file, for those who check them."""

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._seen: tuple[int, int, int] | None = None
        self._by_id: dict[bytes, Key] = {}
        self.guarded = False
        """An operator's key is, or was, in the file, be it revoked or expired: losing the last must not open the
        doors."""
        self._take()

    def refresh(self) -> None:
        """Take over the file if it has changed; one that cannot be read changes nothing and is logged."""
        try:
            found = os.stat(self._path)
            if self._seen == (found.st_mtime_ns, found.st_size, found.st_ino):
                return
            self._take()
        except (OSError, KeysUnusable) as error:
            # Once a breakage, not once a second.
            if self._seen is not None:
                self._seen = None
                log.error("keys_unreadable", path=str(self._path), error=str(error))
        else:
            log.info("keys_read", path=str(self._path), keys=len(self._by_id))

    def check(self, headers: Mapping[bytes, bytes], *scopes: Scope) -> Key:
        """The active key that a request with `headers` (by name in lower case) shows, if it opens any of `scopes`.

        Raises:
            Refused: it shows none (`missing_key`), one that is not active (`invalid_key`), or one of another scope
                (`wrong_scope`). On the operators' side an agent's or an environment's key is as good as an unknown one.
        """
        shown = presented(headers.get(b"x-evolved-key", b""), headers.get(b"authorization", b""))
        key = self.find(shown) if shown else None
        if key is not None and any(opens(key.scope, scope) for scope in scopes):
            return key
        if not shown:
            status, code, what = 401, "missing_key", f"a key of scope {scopes[0]} is needed"
        elif key is not None and (key.scope in OPERATORS or "agent" in scopes):
            status, code = 403, "wrong_scope"
            what = f"this takes a key of scope {scopes[0]}, and {key.id} has {key.scope}"
        else:
            status, code, what = 401, "invalid_key", "unknown, revoked or expired (see `evolved keys list`)"
        where = "show it in x-evolved-key, as a bearer's token or as the password of a login"
        raise Refused(status, code, f"{what}; {where}; make one with `{how_to(scopes[0])}`", param="x-evolved-key")

    def find(self, text: bytes) -> Key | None:
        """The active key whose text this is; None says nothing of why."""
        key = self._by_id.get(text[len(PREFIX) : _ID_END])
        same = hmac.compare_digest(hashlib.sha256(text).hexdigest(), key.digest if key else _NOBODY)
        return key if key and same and key.state(self._clock()) == "active" else None

    def _take(self) -> None:
        keys, self._seen = _read(self._path)
        self._by_id = {key.id.encode(): key for key in keys}
        self.guarded = self.guarded or any(key.scope in OPERATORS for key in keys)


def read_keys(path: Path) -> tuple[Key, ...]:
    return _read(path)[0]


def add_key(
    path: Path, *, tenant: str, scope: Scope, now: float, expires: float | None = None, note: str = ""
) -> tuple[str, Key]:
    """A new key in the file at `path`, which is made if need be: its text, to be shown once, and what is kept of it."""
    with _changing(path) as keys:
        if len(keys) >= _MAX_KEYS:
            raise KeysUnusable(f"{path}: {_MAX_KEYS} keys are in there; start another file")
        key_id = secrets.token_hex(_ID_BYTES)
        text = f"{PREFIX.decode()}{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        key = Key(id=key_id, digest=digest, tenant=tenant, scope=scope, created=now, expires=expires, note=note)
        keys.append(key)
    return text, key


def revoke_key(path: Path, key_id: str, *, now: float) -> Key | None:
    """Revoke a key; None if there is none of that id. One that is revoked already stays as it is."""
    if not path.exists():
        return None
    with _changing(path) as keys:
        for number, key in enumerate(keys):
            if key.id == key_id:
                if key.revoked is None:
                    keys[number] = msgspec.structs.replace(key, revoked=now)
                return keys[number]
    return None


def presented(own: bytes, authorization: bytes) -> bytes:
    """The key that somebody shows: in `x-evolved-key`, as a bearer's token, or as the password of a browser's login;
    empty if there is none, as any other authorization is not ours to look at.
    """
    if own:
        return own.strip()
    scheme, _, rest = authorization.strip().partition(b" ")
    scheme, rest = scheme.lower(), rest.strip()
    if scheme == b"basic":
        try:
            rest = base64.b64decode(rest, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    elif scheme != b"bearer":
        return b""
    return rest if rest.startswith(PREFIX) else b""


def how_to(scope: Scope) -> str:
    """The command that makes a key of `scope`."""
    return f"evolved keys add --scope {scope} --tenant NAME"


def opens(held: Scope, needed: Scope) -> bool:
    """Whether a key of the scope `held` opens what takes one of `needed`."""
    if held == needed:
        return True
    if needed == "teach":
        return held == "admin"
    return held in LADDER and needed in LADDER and LADDER.index(held) > LADDER.index(needed)


def is_loopback(host: str) -> bool:
    """Whether a server on `host` can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_host(setting: str, host: str, keys: KeyRing | None) -> None:
    """See that an operators' side on `host`, which is from `setting`, is this machine's alone, or has a key before it.

    Raises:
        KeysUnusable: others can reach it, and there is no operator's key.
    """
    if not is_loopback(host) and (keys is None or not keys.guarded):
        raise KeysUnusable(
            f"{setting} {host!r}: others can reach it and it has no admin key; make one with "
            f"`{how_to('admin')}`, or listen on 127.0.0.1"
        )


def _read(path: Path) -> tuple[tuple[Key, ...], tuple[int, int, int]]:
    """The keys, and what tells this state of the file from any other."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            read = _decoder.decode(file.read())
    except FileNotFoundError as error:
        raise KeysUnusable(f"keys: {path}: no such file; make a key with `evolved keys add --tenant NAME`") from error
    except OSError as error:
        raise KeysUnusable(
            f"keys: {path}: {error.strerror}; whoever runs tap and daemon must be able to read it"
        ) from error
    except ValueError as error:  # msgspec's errors are among them
        raise KeysUnusable(
            f"keys: {path}: not a key file ({error}); restore it, or move it away and make new keys"
        ) from error
    if found.st_mode & _OTHERS_WRITE:
        raise KeysUnusable(f"keys: {path}: others may write to it, and so make keys; chmod 600 {path}")
    if read.schema > _SCHEMA:
        raise KeysUnusable(f"keys: {path}: written by a newer evolved (schema {read.schema}); upgrade this one")
    return read.keys, (found.st_mtime_ns, found.st_size, found.st_ino)


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[list[Key]]:
    """The keys, to be changed; the file is replaced as a whole at the end. One at a time."""
    new = not path.parent.exists()
    try:
        with alone_with(path):
            if new:
                _give(path.parent, path.parent.parent.stat())
            there = path.exists()
            keys = list(read_keys(path)) if there else []
            yield keys
            owner = (path if there else path.parent).stat()
            with writing_whole(path, mode=0o600) as file:
                _give(file.fileno(), owner)
                if there:
                    os.fchmod(file.fileno(), stat.S_IMODE(owner.st_mode))
                file.write(msgspec.json.format(msgspec.json.encode(_File(keys=tuple(keys))), indent=1) + b"\n")
    except OSError as error:
        raise KeysUnusable(f"{path}: {error.strerror}; give another file, or run as its owner") from error


def _give(made: Path | int, owner: os.stat_result) -> None:
    """What root makes must be readable for the user that tap and daemon run as."""
    if os.geteuid() == 0:
        os.chown(made, owner.st_uid, owner.st_gid)
