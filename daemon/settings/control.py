"""The section [control], by itself: what an order in an emergency needs to read, and no more."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from daemon.settings import toml

_SECTION = "control"


class ControlSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the control API listens."""

    host: str = "127.0.0.1"
    """Address to listen on. Other than loopback only with an admin key (`evolved keys add --scope admin`), and with
    TLS: the key travels with every request."""
    port: int = 8090
    """Port; 0 takes a free one."""
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Host headers that are answered: a page elsewhere cannot reach the API through the reader's browser."""
    tls_cert: str = ""
    """PEM file with the certificate chain; empty: plain HTTP. Read again when it changes."""
    tls_key: str = ""
    """PEM file with its key, for its owner alone."""
    tls_client_ca: str = ""
    """PEM file of authorities: only clients with a certificate of one of them get in, with their key as well."""
    behind_tls_proxy: bool = False
    """Something in front of it speaks TLS, and nobody else reaches it: plain HTTP on an address other than loopback."""
    url: str = ""
    """Where `evolved status` and the other commands find it: "https://evolved.example"; empty: host and port."""
    ca_file: str = ""
    """PEM file of authorities that those commands check its certificate against; empty: the system's."""
    client_cert: str = ""
    """PEM file with the certificate that they show, where it asks for one."""
    client_key: str = ""
    """PEM file with its key."""
    admin_key_file: str = ""
    """File that holds an operator's key, for those commands to show."""


class _Alone(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this section's name."""

    control: ControlSettings = ControlSettings()


def control_settings(path: Path | None, assignments: Sequence[str] = ()) -> ControlSettings:
    """The section as `load` would read it. What is wrong in other sections of the file does not matter: whoever wants
    to stop learning must not have to mend a setting of the judge's first.

    Raises:
        ConfigError: this section cannot be read.
    """
    table: dict[str, Any] = {}
    if path is not None:
        table = {key: value for key, value in toml.read(path).items() if key == _SECTION}
    for text in assignments:
        table = toml.merge(table, toml.assignment(text))
    return toml.convert(table, _Alone, str(path) if path is not None else "settings").control
