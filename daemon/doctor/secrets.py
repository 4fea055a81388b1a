"""Keys, tokens and certificates: can they be read, by us alone, and do they still hold?"""

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography import x509

from daemon.api.admin import admin_keys
from daemon.doctor.base import Check, Finding, Scene, aside, fault, warning
from daemon.errors import ConfigError
from daemon.settings.reading import address
from daemon.settings.tables import Config
from daemon.tap.errors import KeysUnusable
from daemon.tap.keys import is_loopback, read_keys
from daemon.upkeep.provenance import ROLES, Provenance

_SECRETS = ("key_file", "password_file", "token_file", "tls_key")
_CERTIFICATES = ("cert", "ca", "ca_file", "cert_file")
_SOON_DAYS = 14


def named(settings: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every text in `settings` that names something: ("tap.tls_cert", "/etc/..."), options of adapters included."""
    if isinstance(settings, msgspec.Struct):
        pairs: list[tuple[str, object]] = [(name, getattr(settings, name)) for name in settings.__struct_fields__]
    elif isinstance(settings, dict):
        pairs = [(str(key), value) for key, value in settings.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(settings, tuple | list):
        pairs = [(getattr(value, "name", str(number)), value) for number, value in enumerate(settings)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    else:
        return
    for name, value in pairs:
        if isinstance(value, str):
            if value:
                yield ".".join((*path, name)), value
        else:
            yield from named(value, (*path, name))


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    last = name.rpartition(".")[2]
    return any(last == one or last.endswith(f"_{one}") for one in endings)


async def _secrets(scene: Scene) -> Sequence[Finding]:
    return await aside(_secrets_now, scene.config)


def _secrets_now(config: Config) -> list[Finding]:
    found: list[Finding] = []
    for name, value in named(config):
        if _ends(name, _SECRETS):
            found += _secret(name, Path(value))
    provenance = Provenance(config.state)
    for path in map(provenance.private_path, ROLES):
        if os.access(path, os.F_OK):  # each is on one machine alone, or not made yet
            found += _secret("provenance", path)
    if config.keys is not None:
        try:
            keys = read_keys(config.keys)
            if stat.S_IMODE(config.keys.stat().st_mode) & 0o004:
                found.append(warning(f"{config.keys}: everybody can read it", f"chmod 600 {config.keys}"))
            if config.tap.require_key and not any(key.scope == "agent" for key in keys):
                found.append(
                    fault(
                        "tap.require_key is on, and no agent has a key: every call is refused",
                        "make one: evolved keys add --tenant NAME; or set tap.require_key = false",
                    )
                )
        except KeysUnusable as error:
            found.append(fault(str(error), "tap and daemon do not start without it"))
    return found


def _secret(name: str, path: Path) -> list[Finding]:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        return [
            fault(f"{name} {path}: {error.strerror}", "give a file that the service's user can read (LoadCredential)")
        ]
    if mode & 0o004:
        return [warning(f"{name} {path}: everybody on this machine can read it", f"chmod 600 {path}")]
    return []


async def _doors(scene: Scene) -> Sequence[Finding]:
    config = scene.config
    listen = {"control.listen": config.control.listen, "tap.admin": config.tap.admin}
    found: list[Finding] = []
    for name, text in listen.items():
        host, _ = address(text, name)
        try:
            await aside(admin_keys, config.keys, host)
        except (ConfigError, KeysUnusable) as error:
            if not is_loopback(host):
                what, _, remedy = str(error).replace("control.listen", name, 1).partition("; ")
                found.append(fault(what, remedy))
    return found


async def _certificates(scene: Scene) -> Sequence[Finding]:
    found: list[Finding] = []
    for name, value in named(scene.config):
        if _ends(name, _CERTIFICATES):
            found += await aside(_certificate, name, Path(value), scene.now)
    return found


def _certificate(name: str, path: Path, now: float) -> list[Finding]:
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        return [fault(f"{name} {path}: {error.strerror}", f"set {name} to a PEM file of certificates")]
    except ValueError:
        return [fault(f"{name} {path}: no certificates in it", f"set {name} to a PEM file of certificates")]
    at = datetime.fromtimestamp(now, UTC)
    for one in chain:
        who, left = one.subject.rfc4514_string(), one.not_valid_after_utc - at
        if left.total_seconds() <= 0:
            return [
                fault(
                    f"{name} {path}: the certificate {who} expired on {one.not_valid_after_utc:%Y-%m-%d}",
                    "renew it, put it there, and restart who shows it (systemctl restart 'evolved-tap@*')",
                )
            ]
        if one.not_valid_before_utc > at:
            return [
                fault(
                    f"{name} {path}: the certificate {who} is valid from {one.not_valid_before_utc:%Y-%m-%d %H:%M}Z on",
                    "check the clock (timedatectl), or wait",
                )
            ]
        if left.days < _SOON_DAYS:
            return [
                warning(
                    f"{name} {path}: the certificate {who} expires in {left.days} days",
                    "renew it, put it there, and restart who shows it (systemctl restart 'evolved-tap@*')",
                )
            ]
    return []


SECRETS = (
    Check("keys", "files with keys, passwords and tokens: readable, and for us alone", _secrets),
    Check("doors", "ports that others can reach have an admin key", _doors),
    Check("certificates", "expired, or about to", _certificates),
)
