"""systemd's notify protocol: a datagram to `$NOTIFY_SOCKET`. Does nothing where nobody listens."""

import socket
from collections.abc import Mapping

import structlog

_log = structlog.get_logger(__name__)
_SEND_SECONDS = 0.2
"""A full socket means a service manager that is behind; READY is worth a short wait, the loop is worth more."""


class Notify:
    """Tells the service manager that we are ready, alive or stopping."""

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        """`address` is the path of a datagram socket, `@` first if it is abstract; silent for `watchdog_seconds` (0:
        for ever) we are killed."""
        self.watchdog_seconds = watchdog_seconds
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._broken = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Notify":
        """As systemd set it up for the process: `NOTIFY_SOCKET`, `WATCHDOG_USEC`."""
        microseconds = environment.get("WATCHDOG_USEC", "0")
        return cls(environment.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6 if microseconds.isdigit() else 0.0)

    def ready(self, status: str = "") -> None:
        """Started."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """A line for `systemctl status`."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Draining."""
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SEND_SECONDS)
                sender.sendto("\n".join(lines).encode(), self._address)
            self._broken = False
        except OSError as error:
            # A missed datagram only matters if it goes on, and then the watchdog acts on it: say it once.
            if not self._broken:
                _log.warning("notify_failed", error=str(error))
            self._broken = True
