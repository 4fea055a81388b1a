"""`Live`: the live APIs of this daemon, from configuration, entry points and orders; a supervised task.

    [apis.NAME]  --.
    entry points       +-> Entry -> made by its kind -> Guarded -> Registered -> LiveTools -> rollout, control API
    POST /api/adapters-'     (the latter checked against server-side request forgery, and written down)

Each API has a task that opens it and closes it when it is removed. One that fails takes nothing with it.
"""

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import structlog

from actors.ports.errors import AdapterError, AdapterNotSetUp, LiveApiError, LiveApiRefused, LiveApiUnavailable
from actors.store import StoreUnavailable
from actors.system.lifecycle import Lifecycle
from adapters.live import CallResult, LiveApi, Operation
from adapters.live.addresses import AddressGuard
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.policy import PolicySettings
from adapters.live.recording import Recordings
from adapters.live.registry import KINDS, kind
from adapters.live.toolset import LiveTools
from adapters.named import installed
from daemon.errors import ConfigError, DaemonError, OrderRefused
from daemon.live import record as live_record
from daemon.live.orders import REMOTE, AddOrder, entry
from daemon.live.settings import NAME, SECRETS, START_SECONDS, Entry, Health
from daemon.settings import toml
from daemon.settings.tables import ALLOW_HOSTS

log = structlog.get_logger(__name__)
T = TypeVar("T")
_KIND = "live"
"""Entry points `live.NAME` make a `LiveApi` of keyword arguments."""
_BEAT_SECONDS = 30.0
_CLOSE_SECONDS = 15.0
"""For all of them to end; what has not by then is cancelled, and killed."""
_SHOWN = 200
_USERINFO = re.compile(r"(?<=://)[^/@]*@")


MOST = 64
"""APIs that can be added at run time."""


class Registered:
    """A live API as it is registered, itself a `LiveApi`; remembers when it was well and when it was not."""

    def __init__(self, entry: Entry, raw: LiveApi, guarded: Guarded, clock: Callable[[], float]) -> None:
        self.entry, self.raw, self.guarded, self._clock = entry, raw, guarded, clock
        self.shadow = guarded.shadow()
        """As a sandbox may use it."""
        self.name = entry.name
        self.gone, self.closed = anyio.Event(), anyio.Event()
        self._success: float | None = None
        self._failure: float | None = None
        self._error, self._well = "", True

    @property
    def health(self) -> Health:
        seen, one = self.guarded.health, self.entry
        return Health(
            name=one.name, kind=one.kind, origin=one.origin, where=_where(one), mode=one.policy.get("mode", "shadow"),
            ok=self._well and not seen.broken, tools=seen.tools,
            last_success=self._success, last_failure=self._failure, error=self._error,
        )  # fmt: skip

    async def tools(self) -> Sequence[Operation]:
        return await self._noted(self.guarded.tools)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        return await self._noted(lambda: self.guarded.call(tool, arguments))

    def read_only(self, tool: str) -> bool:
        return self.guarded.read_only(tool)

    async def aclose(self) -> None:
        self.gone.set()
        await self.closed.wait()

    async def hold(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Open it, and close it once it is gone; `started` once it is open, or cannot be."""
        opened = False
        try:
            async with AsyncExitStack() as stack:
                if isinstance(self.raw, AbstractAsyncContextManager):
                    await stack.enter_async_context(self.raw)
                else:
                    stack.push_async_callback(self.raw.aclose)
                opened = True
                task_status.started()
                await self.gone.wait()
        except Exception as error:  # of somebody's adapter: no reason to end the daemon
            log.warning("live.not_opened_or_closed", api=self.name, error=f"{type(error).__name__}: {error}")
            if not opened:
                task_status.started()
        finally:
            self.closed.set()

    async def _noted(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            found = await ask()
        except LiveApiRefused:
            raise  # a caller's mistake says nothing about the API
        except AdapterError as error:
            self._failure, self._error, self._well = self._clock(), str(error)[:_SHOWN], False
            if isinstance(error, LiveApiError):
                raise
            raise LiveApiUnavailable(str(error)) from error  # a setting or a secret of it is amiss
        # A broken one's tools come from memory, and a shadow run's answers from elsewhere.
        if not self.guarded.health.broken and (not isinstance(found, CallResult) or found.source == "live"):
            self._success, self._well = self._clock(), True
        return found


class Live:
    """All of them; `tools` is what agents and operators call, `sandbox_tools` what rollouts do."""

    def __init__(
        self,
        apis: Mapping[str, Any],
        state: Path,
        *,
        clock: Callable[[], float] = time.time,
        note: Callable[[str, dict[str, str], str], Awaitable[None]] | None = None,
    ) -> None:
        """
        Args:
            apis: the table [apis]: one of each by its name, and `allow_hosts`, the hosts, addresses and networks
                (10.2.0.0/16) that one added at run time may lead to although they are not public; without TLS too.
            state: directory of this daemon's state.
            note: puts on record in the audit trail what was done, to what, and by which key; none: nobody does.

        Raises:
            ConfigError: a table that cannot be used.
            StartFailed: what was added at run time cannot be read.
        """
        self._clock, self._note = clock, note
        self._file, self._secrets = state / "live" / "adapters.json", state / SECRETS
        try:
            self._guard = AddressGuard(allow_private=tuple(apis.get(ALLOW_HOSTS, ())))
        except ValueError as error:
            raise ConfigError(f"apis.allow_hosts: {error}") from error
        self._audit = AuditLog(state / "live" / "audit.jsonl")
        self._recordings = Recordings(state / "live" / "recordings")
        self._apis: dict[str, Registered] = {}
        self._changing = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ran = False
        self.tools = LiveTools(lambda: self._apis)
        self.sandbox_tools = LiveTools(lambda: {name: one.shadow for name, one in self._apis.items()})
        """The same for rollouts, which change nothing whatever the mode of an API."""
        for name, table in apis.items():
            if name == ALLOW_HOSTS:
                continue
            self._apis[name] = self._made(configured(name, table))
        for other in _installed():
            if other.name not in self._apis:
                self._try(other)
        for other in live_record.read(self._file):
            if other.name in self._apis:
                log.warning("live.name_taken", api=other.name, by=self._apis[other.name].entry.origin)
            else:
                self._try(other)

    def health(self) -> list[Health]:
        return [one.health for one in self._apis.values()]

    def guarded(self) -> Iterator[Guarded]:
        return (one.guarded for one in self._apis.values())

    async def run(self, lifecycle: Lifecycle) -> None:
        """Hold them open until the daemon ends."""
        if self._ran:  # the supervisor starts it again: what was closed is made anew
            self._apis = {name: self._made(one.entry) for name, one in self._apis.items()}
        self._ran = True
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for one in self._apis.values():
                    await tasks.start(one.hold)
                lifecycle.ready()
                for one in self._apis.values():
                    tasks.start_soon(self._look, one)
                while await lifecycle.pause(_BEAT_SECONDS):
                    lifecycle.beat()
            finally:
                self._tasks = None
                for one in self._apis.values():
                    one.gone.set()
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                    for one in self._apis.values():
                        await one.closed.wait()
                tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(self._audit.close)

    async def add(self, order: AddOrder, by: str = "") -> dict[str, Any]:
        """Register an API, if it can list its tools; its health and its tools.

        Raises:
            OrderRefused: 403 what is never taken here, 409 a name that is taken or too many, 422 what is not right,
                502 it does not answer as it should; nothing is added then.
        """
        new = entry(order, self._secrets, by=by, now=self._clock())
        async with self._changing:
            if new.name in self._apis:
                origin = self._apis[new.name].entry.origin
                raise OrderRefused(
                    409, f"there is an API {new.name!r} already, by {origin}; remove it or take another name"
                )
            if sum(one.entry.origin == "control" for one in self._apis.values()) >= MOST:
                raise OrderRefused(409, f"{MOST} were added already; remove one first")
            if self._tasks is None:
                raise OrderRefused(503, "live APIs are not running yet, or no more; try again")
            try:
                await self._guard.check(order.url)
                one = self._made(new)
            except LiveApiRefused as error:
                raise OrderRefused(403, str(error)) from error
            except LiveApiUnavailable as error:
                raise OrderRefused(502, str(error)) from error
            except DaemonError as error:
                raise OrderRefused(422, str(error)) from error
            await self._tasks.start(one.hold)
            try:
                found = await self._tried(one)
                self._apis[new.name] = one
                await self._noted("adapter_added", new, by)
                await self._write()
            except BaseException:
                self._apis.pop(new.name, None)
                with anyio.CancelScope(shield=True):
                    await one.aclose()
                raise
        log.info("live.added", api=new.name, kind=new.kind, tools=len(found), by=by)
        return {"adapter": one.health, "tools": found}

    async def remove(self, name: str, by: str = "") -> None:
        """Take out an API that was added at run time; calls under way may still end.

        Raises:
            OrderRefused: 404 there is none, 409 it comes from elsewhere.
        """
        async with self._changing:
            one = self._one(name)
            if one.entry.origin != "control":
                raise OrderRefused(409, f"{name!r} comes by {one.entry.origin}; take it out there and start again")
            await self._noted("adapter_removed", one.entry, by)
            del self._apis[name]
            try:
                await self._write()
            except OSError as error:
                self._apis[name] = one
                raise OrderRefused(503, f"{self._file}: {error.strerror}; nothing was removed") from error
            with anyio.CancelScope(shield=True):
                await one.aclose()
        log.info("live.removed", api=name, by=by)

    async def test(self, name: str) -> dict[str, Any]:
        """Ask an API for its tools now; its health and them.

        Raises:
            OrderRefused: 404 there is none, 502 it does not answer as it should.
        """
        one = self._one(name)
        begun = self._clock()
        found = await self._tried(one)
        return {"adapter": one.health, "tools": found, "seconds": round(self._clock() - begun, 3)}

    async def _look(self, one: Registered) -> None:
        """Ask it for its tools once, so that its health is known before somebody needs it."""
        try:
            await one.tools()
        except AdapterError as error:
            log.warning("live.not_there", api=one.name, reason=str(error)[:_SHOWN])

    async def _tried(self, one: Registered) -> Sequence[Operation]:
        try:
            with anyio.fail_after(START_SECONDS):
                return await one.tools()
        except LiveApiRefused as error:
            raise OrderRefused(403, str(error)) from error
        except AdapterError as error:
            raise OrderRefused(502, f"{one.name}: {error}") from error
        except TimeoutError as error:
            raise OrderRefused(502, f"{one.name}: no tools within {START_SECONDS:g} s") from error

    async def _noted(self, what: str, entry: Entry, by: str) -> None:
        """On record before it is done: what the audit trail does not know must not be in use."""
        if self._note is None:
            return
        try:
            await self._note(what, {"api": entry.name, "kind": entry.kind, "where": _where(entry)}, by)
        except StoreUnavailable as error:
            raise OrderRefused(503, f"the audit trail cannot be written ({error}); nothing was changed") from error

    def _one(self, name: str) -> Registered:
        if name not in self._apis:
            raise OrderRefused(404, f"no API {name!r}; there are {', '.join(self._apis) or 'none'}")
        return self._apis[name]

    async def _write(self) -> None:
        entries = [one.entry for one in self._apis.values() if one.entry.origin == "control"]
        await anyio.to_thread.run_sync(live_record.write, self._file, entries)

    def _try(self, other: Entry) -> None:
        """Register what is not in the configuration: should it not work, the daemon does without."""
        try:
            self._apis[other.name] = self._made(other)
        except DaemonError as error:
            log.error("live.left_out", api=other.name, origin=other.origin, reason=str(error))

    def _made(self, one: Entry) -> Registered:
        policy, options = _typed(one)
        try:
            if options is None:
                raw = _loaded(one)
            else:
                raw = kind(one.kind).make(one.name, options, self._guard if one.origin == "control" else None)
        except (AdapterNotSetUp, ValueError, TypeError) as error:
            raise ConfigError(f"apis.{one.name}: {error}") from error
        return Registered(one, raw, Guarded(raw, policy, recordings=self._recordings, audit=self._audit), self._clock)


def configured(name: str, table: Mapping[str, Any]) -> Entry:
    """The table [apis.NAME]. Raises ConfigError: names the key and the nearest known one."""
    if not NAME.fullmatch(name) or not isinstance(table, Mapping):
        raise ConfigError(f"[apis.{name}]: write a table of up to 31 of a-z, 0-9, _ and -, without two _ in a row")
    options = {key: value for key, value in table.items() if key not in ("kind", "policy")}
    known = (*KINDS, "installed")
    if table.get("kind") not in known:
        raise ConfigError(f"apis.{name}.kind is {table.get('kind')!r}; write one of {', '.join(known)}")
    made = Entry(name=name, kind=table["kind"], options=options, policy=dict(table.get("policy", {})))
    _typed(made)
    return made


def _typed(one: Entry) -> tuple[PolicySettings, Any]:
    """Its policy and its options; the latter None for what an entry point makes, which checks them itself."""
    path = ("apis", one.name)
    policy = toml.convert(one.policy, PolicySettings, "settings", (*path, "policy"))
    if one.kind == "installed":
        return policy, None
    try:
        return policy, toml.convert(one.options, kind(one.kind).settings, "settings", path)
    except AdapterNotSetUp as error:
        raise ConfigError(f"apis.{one.name}: {error}") from error


def _installed() -> list[Entry]:
    names = sorted(installed(_KIND))
    return [Entry(name=name, kind="installed", origin="entry point") for name in names if NAME.fullmatch(name)]


def _loaded(one: Entry) -> LiveApi:
    from daemon.composition.registry import build

    return build(_KIND, one.name, one.options)


def _where(one: Entry) -> str:
    """What tells a person which one it is."""
    options = one.options
    found = options.get(REMOTE.get(one.kind, ""), "") or " ".join(
        options.get("command") or options.get("functions") or ()
    )
    return _USERINFO.sub("", str(found)).partition("?")[0][:_SHOWN]
