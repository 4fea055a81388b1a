"""What every monitor is, and what they say to each other.

A monitor looks when it is asked to, at what is new and what is remembered, and answers with findings; the sentinel
carries them out. It is pure: the same runs in the same order at the same times give the same findings. What it
remembers is bounded and travels through `save` and `restore`, so that a restart neither repeats a finding nor forgets a
look.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from actors.monitoring.history import History

Action = Literal["tell", "freeze", "rollback"]
"""tell: a directive `notice`, which changes nothing and is on record. freeze: learning and promotion stop until a
person thaws them, what serves goes on. rollback: the version before serves again, and learning freezes."""

SEVERITY: dict[Action | Literal["drift"], int] = {"tell": 0, "drift": 1, "freeze": 2, "rollback": 3}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person would want to know, with the numbers that it rests on."""

    cause: str
    """What was found, a stable name; with `key` it is said once."""
    key: tuple[str | int, ...]
    """Of which version, tenant, engine or period it was found."""
    action: Action | Literal["drift"]
    reason: str
    """One line for people, with the numbers."""
    details: dict[str, str] = {}
    """For those who act on it: version, to, engine, tenant, tools, missing, new."""


class Monitor:
    """Watches one thing; by itself nothing."""

    name: str
    """Of its state and its metrics."""
    kept: ClassVar[Any]
    """Type of `_state`."""
    _state: Any

    def look(self, history: History, now: float) -> list[Finding]:
        """What is new since the last look. `now` is in Unix seconds."""
        raise NotImplementedError

    def readings(self) -> Mapping[str, float]:
        """Present values by name, as of the last look that had enough to go by."""
        return self._state.readings

    def save(self) -> bytes:
        """What must survive a restart, msgpack."""
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        """Go on from what `save` gave.

        Raises:
            msgspec.DecodeError: it was written by another version of evolved; the monitor is as new.
        """
        self._state = msgspec.msgpack.decode(data, type=self.kept)
