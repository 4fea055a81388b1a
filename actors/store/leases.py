"""Leases: who may do what only one may, with an epoch that rises with each holder.

A lease is a row, taken by one conditional update that raises the epoch; it runs out by the database's clock. The daemon
that leads has one (`Lead`), and so has each swap under way. Each write of a daemon looks whether the lead's epoch is
still its own, FOR KEY SHARE: what commits under an epoch commits before the next one begins.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Concatenate, Never, ParamSpec, TypeVar

import msgspec
import structlog
from sqlalchemy import Connection, case, func, literal_column, select, update
from sqlalchemy.exc import DBAPIError

from actors.store.engine import insert_new, open_engine
from actors.store.errors import StoreUnavailable
from actors.store.postgresql import end_silent_writer
from actors.store.tables import Leases

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger(__name__)
LEAD = "leader"
"""Name of the lead's lease."""
LEAD_SECONDS = 5.0
"""From the death of the daemon that leads until another one may; short of a busy machine's pauses it must not be."""
_RENEW_SECONDS = 1.0
_EPOCH_ZERO = 1_577_836_800
"""2020-01-01. An epoch is at least the seconds since then: engines remember the greatest, and a database that was
restored, or made anew, must not come back with smaller ones."""
_LOCK_MILLISECONDS = "1000"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it stands."""

    holder: str = ""
    about: str = ""
    """What others should know of the holder."""
    epoch: int = 0
    """0: nobody ever had it."""
    seconds_left: float = 0.0
    """Until it runs out; 0: it is free."""
    taken: bool = False
    """By this very call."""


def take(connection: Connection, name: str, holder: str, seconds: float, about: str = "") -> Standing:
    """Take `name` for so long if it is free, whoever had it; how it stands then."""
    insert_new(connection, Leases, [{"name": name, "holder": "", "about": "", "epoch": 0, "expires": 0.0}])
    now = _now(connection)
    least = int(now) - _EPOCH_ZERO
    took = connection.execute(
        update(Leases)
        .where(Leases.name == name, Leases.expires <= now)
        .values(
            holder=holder, about=about, expires=now + seconds,
            epoch=case((Leases.epoch >= least, Leases.epoch + 1), else_=least),
        )
    )  # fmt: skip
    return msgspec.structs.replace(standing(connection, name), taken=took.rowcount == 1)


def renew(connection: Connection, name: str, epoch: int, seconds: float) -> bool:
    """Have it last for `seconds` from now; False if there is another epoch, or it was given back."""
    held = (Leases.name == name, Leases.epoch == epoch, Leases.expires > 0)
    return connection.execute(update(Leases).where(*held).values(expires=_now(connection) + seconds)).rowcount == 1


def give_back(connection: Connection, name: str, epoch: int) -> None:
    """It is free from now on, if its epoch is still `epoch`."""
    connection.execute(update(Leases).where(Leases.name == name, Leases.epoch == epoch).values(expires=0.0))


def standing(connection: Connection, name: str) -> Standing:
    """How it stands."""
    wanted = select(Leases.holder, Leases.about, Leases.epoch, Leases.expires).where(Leases.name == name)
    found = connection.execute(wanted).first()
    if found is None:
        return Standing()
    left = found.expires - _now(connection) if found.expires else 0.0
    return Standing(holder=found.holder, about=found.about, epoch=found.epoch, seconds_left=max(0.0, left))


def _now(connection: Connection) -> float:
    """The database's clock, unix seconds."""
    sqlite = connection.dialect.name == "sqlite"
    clock = "(julianday('now') - 2440587.5) * 86400.0" if sqlite else "extract(epoch FROM clock_timestamp())"
    return float(connection.scalar(select(literal_column(clock))) or 0.0)


def _leave() -> Never:
    sys.stderr.flush()
    os._exit(1)


class Lead:
    """One daemon's part in the lead: `take` it once it is free, `keep` it, `give_back` at the end.

    It is renewed by a thread, over connections of its own: neither a long transaction nor a busy loop lets it run out.
    Whoever finds another epoch in the row ends the process on the spot; the service manager starts it afresh, to wait.
    While the database is away nobody can take the lead, and nobody ends.
    """

    def __init__(
        self, url: str, password_file: str = "", *, holder: str, about: str = "", leave: Callable[[], Never] = _leave
    ) -> None:
        """Nothing is opened yet. `holder` is unique to this daemon's life, `about` says where it can be reached."""
        engine = open_engine(url, password_file, 2)
        # An SQLite file is one daemon's by a file lock: whoever had the lead is dead, and nobody will take it.
        self.sole = engine.dialect.name == "sqlite"
        self._engine = engine.execution_options(writing=True) if self.sole else engine
        self._leave = leave
        self._seconds = 0.0 if self.sole else LEAD_SECONDS
        self.holder, self._about = holder, about
        self.epoch = 0
        """0: it waits."""
        self._until, self._over = 0.0, threading.Event()

    @property
    def leads(self) -> bool:
        """As far as is known: nobody else can have taken it by now."""
        return self.epoch > 0 and (self.sole or time.monotonic() < self._until)

    def take(self) -> Standing:
        """Take it if it is free; how it stands then. `StoreUnavailable`: it may have been taken all the same."""
        return self._run(_take_lead, LEAD, self.holder, self._seconds, self._about)

    def keep(self, epoch: int) -> None:
        """It is had, under `epoch`: renew it from now on."""
        self.epoch, self._until = epoch, time.monotonic() + self._seconds
        _log.info("leads", epoch=epoch, holder=self.holder)
        if not self.sole:
            threading.Thread(target=self._renew, name="lead", daemon=True).start()

    def check(self, connection: Connection) -> None:
        """To be called in a write transaction before anything else: ends the process if somebody else leads."""
        if self.sole or not self.epoch:
            return
        wanted = select(Leases.epoch).where(Leases.name == LEAD).with_for_update(read=True, key_share=True)
        if (found := connection.scalar(wanted)) != self.epoch:
            self._lost(found)

    def give_back(self) -> None:
        """It is free; the database's answer is not needed, only sooner than its running out."""
        self._over.set()
        with contextlib.suppress(StoreUnavailable):
            self._run(give_back, LEAD, self.epoch)
        self._engine.dispose()

    def _renew(self) -> None:
        reason = ""
        while not self._over.wait(_RENEW_SECONDS):
            asked = time.monotonic()
            try:
                kept = self._run(renew, LEAD, self.epoch, self._seconds)
            except (StoreUnavailable, DBAPIError) as error:
                if str(error) != reason:
                    reason = str(error)
                    _log.warning("lead_not_renewed", reason=reason)
                continue
            if not kept and not self._over.is_set():
                self._lost(None)
            self._until, reason = asked + self._seconds, ""

    def _lost(self, found: int | None) -> Never:
        _log.error("lead_lost", epoch=self.epoch, found=found, remedy="none needed: it starts again, and waits")
        self._leave()

    def _run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._engine.begin() as connection:
            if not self.sole:
                # A taker must not wait for a holder that hangs, nor a holder for its own renewal.
                connection.execute(select(func.set_config("lock_timeout", _LOCK_MILLISECONDS, True)))
            return work(connection, *args, **kwargs)


def _take_lead(connection: Connection, name: str, holder: str, seconds: float, about: str) -> Standing:
    if connection.dialect.name == "postgresql" and not standing(connection, name).seconds_left:
        end_silent_writer(connection)  # who led may hang with what the next statement waits for
    return take(connection, name, holder, seconds, about)
