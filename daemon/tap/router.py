"""Which of several engines a call goes to: new trajectories by weight, the calls of one trajectory to the same engine.

While a version is on trial, its engine gets its share of new trajectories and the others get the rest by weight. Who
gets which is left to chance, not dealt out in turns: users who come in a rhythm would else be on one side, and a
comparison of the sides would compare users. An engine that is closed, because it is about to be paused, gets no new
trajectory while another one is open.

The daemon tells both in a file (`actors.messages.routes`) that is read a few times a second. If nobody renews it in
time, the daemon is away: nothing is closed any more, and the canary gets no new trajectories, for nobody watches it.

A call tells its trajectory by the ids in it: the explicit header, the response that it follows, the tool calls that it
answers; failing these, by the opening of its conversation. The ids of every answer are remembered for the engine that
gave it, by all taps of the machine. One engine behind the tap needs none of this and pays for none of it.
"""

import asyncio
import contextlib
import hashlib
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from actors.messages.routes import Routes, read_routes
from daemon.tap.conversation import goes_on, named, newest_ids, opening, telling
from daemon.tap.request import Request
from daemon.tap.route_table import RouteTable
from daemon.tap.upstream import Upstream

_MADE = re.compile(rb'"(?:id|call_id)"\s*:\s*"([^"\\]{1,256})"')
_NOTHING = Routes(until=0.0)

log = structlog.get_logger(__name__)


class Router:
    """All engines behind the tap."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        *,
        table: Path | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`table`: file in memory that the taps of this machine share (`daemon.tap.route_table`); `clock`: unix
        seconds.
        """
        self.upstreams = tuple(upstreams)
        self._rng, self._clock = rng or random.Random(), clock
        self._named = {one.name: one for one in self.upstreams}
        self.many = len(self.upstreams) > 1
        self._table = RouteTable(self._named, table if self.many else None)
        self._routes = _NOTHING
        self.canary: Upstream | None = None
        """Serves a version on trial."""
        self.share = 0.0
        self._unusable = ""
        """Why the daemon's file cannot be used, as it was logged."""
        self.errors = 0
        """Times that it became unusable."""

    @property
    def in_flight(self) -> int:
        """Calls that are under way."""
        return sum(one.in_flight for one in self.upstreams)

    def choose(self, request: Request) -> Upstream:
        if not self.many:
            return self.upstreams[0]
        keys, first = _keys(request), b"o:" + hashlib.blake2b(opening(request.body), digest_size=16).digest()
        # Identical openings are common: only a conversation that goes on may follow one, a new one goes by weight.
        follows = [*keys, first] if goes_on(request.body) else keys
        known = (self._named.get(self._table.get(key) or "") for key in follows)
        chosen = next((one for one in known if one is not None and one.healthy), None)
        if chosen is None:
            chosen = self._draw()
            chosen.trajectories += 1
        self._remember([*keys, first], chosen)
        return chosen

    def other(self, tried: Sequence[Upstream]) -> Upstream | None:
        """A healthy engine that is not among `tried`; the canary, or one that is closed, if there is no other."""
        rest = [one for one in self.upstreams if one.healthy and one.weight > 0 and one not in tried]
        return max(rest, key=lambda one: (not one.closed, one is not self.canary, one.weight), default=None)

    def learn(self, answer: bytes, upstream: Upstream) -> None:
        """Remember the ids in `answer` (plain or a stream) as made by `upstream`."""
        if self.many:
            self._remember(telling(_MADE.findall(answer)), upstream)

    def _draw(self) -> Upstream:
        """The engine for a new trajectory: healthy and open if there is one; over all if none is, so that the error is
        the engine's."""
        able = [one for one in self.upstreams if one.healthy and one.weight > 0]
        able = [one for one in able if not one.closed] or able
        able = able or [one for one in self.upstreams if one.weight > 0]
        rest = [one for one in able if one is not self.canary]
        if self.canary is not None and self.canary in able and (not rest or self._rng.random() < self.share):
            return self.canary
        drawn = rest or able
        return self._rng.choices(drawn, [one.weight for one in drawn])[0]

    def _remember(self, keys: Sequence[bytes], upstream: Upstream) -> None:
        for key in keys:
            self._table.put(key, upstream.name)

    async def watch(self, seconds: float) -> None:
        """Ask each of several engines for its health, for ever."""
        while self.many:
            await asyncio.sleep(seconds)
            await asyncio.gather(*(self._check(one, seconds) for one in self.upstreams))

    async def _check(self, upstream: Upstream, seconds: float) -> None:
        healthy = False
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(max(1.0, seconds)):
                healthy = await upstream.probe()
        upstream.tell(healthy=healthy)

    async def follow(self, path: Path, seconds: float) -> None:
        """Look every `seconds` what the daemon tells of several engines, for ever."""
        while self.many:
            self.look(path)
            await asyncio.sleep(seconds)

    def look(self, path: Path) -> None:
        """Take over what the daemon's file says; what cannot be read changes nothing."""
        unusable = ""
        try:
            self._routes = read_routes(path)
        except FileNotFoundError:
            self._routes = _NOTHING  # no daemon has ever run here, or it has one engine now
        except (OSError, msgspec.DecodeError) as error:
            unusable = str(error)
        routes = self._routes
        stale = self._clock() > routes.until
        self.canary = self._named.get(routes.canary)
        self.share = 0.0 if stale else min(1.0, max(0.0, routes.share))
        for one in self.upstreams:
            one.closed = one.name in routes.closed and not stale
        unknown = {routes.canary, *routes.closed, *routes.versions} - {"", *self._named}
        if unknown:
            unusable = f"unknown engines {sorted(unknown)}: engines and the daemon's engines need the same names"
        elif stale and routes is not _NOTHING:
            unusable = unusable or "nobody has renewed it in time: the daemon is away"
        if unusable != self._unusable:
            self._unusable = unusable
            self.errors += bool(unusable)
            if unusable:
                log.warning("routes_unusable", path=str(path), reason=unusable)
            else:
                log.info("routes_usable", path=str(path))


def _keys(request: Request) -> list[bytes]:
    """The ids that tell the trajectory of `request`, the surest first."""
    run, _ = named(request)
    return [b"t:" + run[:256]] if run else newest_ids(request.body)
