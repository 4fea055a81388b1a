"""SIGHUP: the settings are read again, and what can change while it runs does.

    file -> read and check, all of it -> keys that changed -> live ones to their parts
                                                           -> the rest: named, until there is a restart

A file that cannot be used changes nothing: the settings from before go on, and log, `evolved status` and metrics say
why. What is pending is told for as long as it is: the file says one thing and the process does another. Keys are
logged, values never.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from daemon.collectors.figures import Figures, gauge

T = TypeVar("T", bound=msgspec.Struct)
_log = structlog.get_logger(__name__)


class Reload(msgspec.Struct, frozen=True, kw_only=True):
    """How the last reload went."""

    at: float = 0.0
    """Unix seconds; that of the start before the first reload."""
    error: str = ""
    """Why the file was not taken; names the file, the key and the remedy. Empty: it was."""
    applied: tuple[str, ...] = ()
    """Settings that changed with it."""
    pending: tuple[str, ...] = ()
    """Settings whose value in the file waits for a restart."""


class _Part(msgspec.Struct, frozen=True):
    """Somebody who takes new settings."""

    path: str
    apply: Callable[[Any], None]
    but: tuple[str, ...]
    only: tuple[str, ...]

    def takes(self, key: str) -> bool:
        if not _below(key, self.path):
            return False
        if self.only and not any(_below(key, f"{self.path}.{one}") for one in self.only):
            return False
        return not any(_below(key, f"{self.path}.{one}") for one in self.but)


class Reloading(Generic[T]):
    """Keeps what a process runs with, and brings it to what its file says."""

    def __init__(
        self,
        running: T,
        read: Callable[[], T],
        *,
        errors: tuple[type[Exception], ...],
        ignores: Collection[str] = (),
        minds: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            running: settings that the process was started with.
            read: the same from their file, checked as at a start.
            errors: what `read` raises about settings that cannot be used.
            ignores: sections that are other processes' affair, but for what `minds` names in them.
            clock: unix seconds.
        """
        self.running = running
        self._read, self._errors, self._clock = read, errors, clock
        self._ignores, self._minds = tuple(ignores), tuple(minds)
        self._parts: list[_Part] = []
        self.last = Reload(at=clock())

    def part(
        self, path: str, apply: Callable[[Any], None], *, but: Collection[str] = (), only: Collection[str] = ()
    ) -> None:
        """Give a part its section whenever something live in it has changed.

        Args:
            path: of the section ("gate.keeper").
            apply: takes the whole section, and must not fail: it was checked.
            but: keys and sections in it that need a restart.
            only: those in it that do not, all others do; empty: all.
        """
        self._parts.append(_Part(path, apply, tuple(but), tuple(only)))

    async def reload(self) -> str:
        """Read the file and take over what can be; a line for people about how it went."""
        return self.now()

    def now(self) -> str:
        """`reload`, for those who are not trio's or asyncio's."""
        try:
            new = self._read()
        except self._errors as error:
            self.last = Reload(at=self._clock(), error=str(error), pending=self.last.pending)
            _log.error("config_not_reloaded", error=str(error), kept="the settings from before")
            return f"settings not reloaded: {error}"
        before, after = flat(self.running), flat(new)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        changed = {key for key in changed if self._concerns(key)}
        live = {key for key in changed if any(part.takes(key) for part in self._parts)}
        effective = _mixed(self.running, new, live)
        self.running = effective
        for part in self._parts:
            if any(part.takes(key) for key in live):
                part.apply(_at(effective, part.path))
        self.last = Reload(at=self._clock(), applied=tuple(sorted(live)), pending=tuple(sorted(changed - live)))
        _log.info("config_reloaded", applied=self.last.applied, needs_restart=self.last.pending)
        return f"settings reloaded: {len(live)} applied, {len(changed - live)} need a restart"

    def register(self, registry: CollectorRegistry) -> None:
        """Make its figures part of `registry`."""
        registry.register(Figures(_figures, self))

    def _concerns(self, key: str) -> bool:
        return any(_below(key, one) for one in self._minds) or not any(_below(key, one) for one in self._ignores)


def _figures(reloading: "Reloading[Any]") -> Iterator[Metric]:
    """Prometheus' own names for the same: `prometheus_config_last_reload_successful`, ..._success_timestamp_seconds."""
    last = reloading.last
    yield gauge("evolved_config_reload_success", "1 if the settings were taken when last read.", not last.error)
    yield gauge("evolved_config_reload_timestamp_seconds", "When they were last read.", last.at)
    yield gauge("evolved_config_pending", "Settings of the file that wait for a restart.", len(last.pending))


def flat(settings: msgspec.Struct) -> dict[str, Any]:
    """Settings by dotted key: {"tap.door.sampling": 1.0}; a list is one value."""
    found: dict[str, Any] = {}

    def walk(table: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key, value in table.items():
            if isinstance(value, dict) and value:
                walk(value, (*path, str(key)))  # pyright: ignore[reportUnknownArgumentType]
            else:
                found[".".join((*path, str(key)))] = value

    walk(msgspec.to_builtins(settings), ())
    return found


def _below(key: str, path: str) -> bool:
    return key == path or key.startswith(f"{path}.")


def _at(settings: Any, path: str) -> Any:
    for name in path.split("."):
        settings = getattr(settings, name)
    return settings


def _mixed(running: T, new: T, live: Collection[str]) -> T:
    """`running` with the keys `live` as in `new`."""

    def mix(old: Any, fresh: Any, path: str) -> Any:
        if isinstance(old, msgspec.Struct) and type(old) is type(fresh):
            names = [name for name in old.__struct_fields__ if any(_below(key, _join(path, name)) for key in live)]
            return msgspec.structs.replace(
                old, **{name: mix(getattr(old, name), getattr(fresh, name), _join(path, name)) for name in names}
            )
        return fresh

    return mix(running, new, "")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
