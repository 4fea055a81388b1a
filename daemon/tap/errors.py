"""What can go wrong on the way from an agent to the engine.

TapError
├── Refused                 the tap answers by itself, with this status and an error in OpenAI's format
├── UpstreamBroke           the engine's connection ended, or spoke no HTTP, before the response was whole
├── InvalidTapSettings      a setting that cannot work
│   └── KeysUnusable        a key file that is not there, not ours, or not to be trusted
├── PortTaken               somebody else listens where the tap should
└── NumberTaken             another tap of this machine has the number
"""


class TapError(Exception):
    """Root of this package's errors."""


class Refused(TapError):
    """A request that the tap does not pass on: HTTP status, a reason for `error.code` and the metrics, the field or
    header at fault, and for 405 the methods that the path takes.
    """

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, allow: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.allow = status, code, param, allow


class UpstreamBroke(TapError):
    """The engine closed in the middle, or what it sent is no HTTP response."""


class InvalidTapSettings(TapError):
    """Names the setting, what is wrong with it and what to write instead."""


class KeysUnusable(InvalidTapSettings):
    """Names the key file, what is wrong with it and what to do."""


class PortTaken(TapError):
    """Names the setting of a port where the tap cannot listen."""


class NumberTaken(TapError):
    """Names the number, where it is told who has it, and the remedy."""
