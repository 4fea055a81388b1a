"""What can go wrong when the parts are put together.

DaemonError
├── ConfigError      a setting that is unknown, of the wrong type, or contradicts another
├── StartFailed      a process of ours did not come up in time
├── CommandFailed    a command that cannot start or go on
├── OrderRefused     an operator's order that cannot be carried out
└── ControlUnreachable   no daemon answers on the control address
"""


class DaemonError(Exception):
    """Root of this package's errors; the command line prints its text and exits with 2."""


class ConfigError(DaemonError):
    """Names the setting, what is wrong with it and what to write instead."""


class StartFailed(DaemonError):
    """Names the process and the log file that tells why."""


class ControlUnreachable(DaemonError):
    """`evolved status` and its like found no running daemon."""


class OrderRefused(DaemonError):
    """Says why, and what could be ordered instead.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CommandFailed(DaemonError):
    """Names what is in the way (a file, a store, an engine, an option), how far it got, and the remedy."""
