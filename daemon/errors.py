"""What can go wrong when the parts are put together.

DaemonError
├── ConfigError      a setting that is unknown, of the wrong type, or contradicts another
├── StartFailed      a process of ours did not come up in time
├── EvalFailed       an evaluation that cannot start or go on
├── TasksFailed      tasks cannot be made here, or their file cannot be used
├── TransferFailed   an export or import that cannot go on
├── OrderRefused     an operator's order that cannot be carried out
├── InstallRefused   `evolved install` would harm something, or may not write
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


class EvalFailed(DaemonError):
    """Names the engine, the environment or the option that is in the way, and the remedy."""


class TasksFailed(DaemonError):
    """Names the environment or the file, what is in the way, and the remedy."""


class TransferFailed(DaemonError):
    """Names the file or the store, how far it got, and what is in the way."""


class InstallRefused(DaemonError):
    """Names the file or the setting that is in the way, and the remedy."""
