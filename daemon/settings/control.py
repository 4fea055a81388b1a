"""The control API: where it listens, and where and how commands find it."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from daemon.settings import reading
from daemon.settings.tables import Control


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
    behind_tls_proxy: bool = False
    """Something in front of it speaks TLS, and nobody else reaches it: plain HTTP on an address other than loopback."""
    url: str = ""
    """Where `evolved status` and the other commands find it: "https://evolved.example"; empty: host and port."""
    ca_file: str = ""
    """PEM file of authorities that those commands check its certificate against; empty: the system's."""
    admin_key_file: str = ""
    """File that holds an operator's key, for those commands to show."""


def control_settings(path: Path | None, assignments: Sequence[str] = ()) -> ControlSettings:
    """What an order in an emergency needs to read, and no more.

    Raises:
        ConfigError: the table [control] cannot be read.
    """
    if not all(text.startswith("control.") for text in assignments):
        reading.load(path, assignments)  # one that is mistyped must not send an order to another daemon
    return where(reading.control(path, assignments), asked=any("control" in text for text in assignments))


def reached_at(control: Control) -> str:
    """URL at which others find this control API, by the first of its names."""
    host, port = reading.address(control.listen, "control.listen")
    if control.names and control.behind_proxy:
        return f"https://{control.names[0]}"
    host = control.names[0] if control.names else f"[{host}]" if ":" in host else host
    return f"http{'s' if control.tls_cert else ''}://{host}:{port}"


def where(control: Control, *, asked: bool = False) -> ControlSettings:
    """`asked`: the command line says where, so that EVOLVED_URL does not."""
    host, port = reading.address(control.listen, "control.listen")
    hosts = tuple(dict.fromkeys((*ControlSettings().allowed_hosts, host, *control.names)))
    return ControlSettings(
        host=host, port=port, allowed_hosts=hosts, tls_cert=control.tls_cert, tls_key=control.tls_key,
        behind_tls_proxy=control.behind_proxy, url="" if asked else os.environ.get("EVOLVED_URL", ""),
        ca_file=os.environ.get("SSL_CERT_FILE", ""), admin_key_file=os.environ.get("EVOLVED_KEY_FILE", ""),
    )  # fmt: skip
