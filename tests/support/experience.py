"""A pool of lessons behind the real control API, with the plainest search that does."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from actors.deployment.fleet import Fleet
from actors.experience.forgetting import forget
from actors.messages import Directive, Experience
from actors.store import Store
from adapters.redaction import RedactionSettings, Redactor
from daemon.api.control import Control
from daemon.api.experience import ExperienceApi
from daemon.api.killswitch import KillSwitch
from daemon.api.live import LiveRoutes
from daemon.api.orders import Orders
from daemon.api.run_story import RunStoryApi
from daemon.api.trajectories import TrajectoryApi
from daemon.api.versions import VersionApi
from daemon.experience.forgetting import Forgetter
from daemon.experience.service import ExperiencePool
from daemon.live.registry import Live
from daemon.tap.keys import KeyRing
from tests.support.keys import key_pair


def lesson(key: str, **fields) -> Experience:
    """An active lesson of the tenant acme."""
    values = {
        "id": key, "tenant": "acme", "when_to_use": f"when {key}", "content": f"do {key}", "state": "active",
        "origin": "contrast", "updated": 1.0,
    }  # fmt: skip
    return Experience(**{**values, **fields})


async def lessons_of(store: Store) -> dict[str, Experience]:
    """By id, as they are now."""
    return {found.id: found for found in await store.experiences()}


async def by_words(
    store: Store, text: str, tenant: str, k: int, kinds: Collection[str] | None = None,
    states: Collection[str] | None = None,
) -> list[tuple[float, Experience]]:  # fmt: skip
    """Lessons, scored by the share of the question's words that they have."""
    words = set(text.lower().split())
    scored = [
        (len(words & set(f"{found.when_to_use} {found.content}".lower().split())) / len(words), found)
        for found in await store.experiences()
        if found.tenant == tenant and found.kind in (kinds or (found.kind,))
        and found.state in (states or (found.state,))
    ]  # fmt: skip
    return sorted((one for one in scored if one[0] > 0), key=lambda one: -one[0])[:k]


class Desk:
    """The control API over a store, with what it sent and asked for."""

    def __init__(
        self, store: Store, state: Path, clock: Callable[[], float] = lambda: 50.0, live: Live | None = None,
        **told: Any,
    ) -> None:  # fmt: skip
        """`told`: more of what `Control` is given."""
        self.store, self.sent, self.ordered, self.retried = store, list[Experience](), list[Directive](), list[str]()
        self.fleet, self.kill, self.registry = Fleet(), KillSwitch(state), CollectorRegistry()
        self.key, self.keys = key_pair(state / "signing")
        self.pool = ExperiencePool(
            store=store, search=partial(by_words, store), redact=Redactor(RedactionSettings()).text, send=self._send,
            clock=clock,
        )  # fmt: skip
        forgetter = Forgetter(store=store, lessons=forget, memory=state / "learner", clock=clock)
        orders = Orders(
            store=store, fleet=lambda: self.fleet, kill=self.kill, send=self.obey, key=self.key, keys=self.keys,
            clock=clock,
        )  # fmt: skip
        live = live or Live({}, state)
        routes = [
            *ExperienceApi(self.pool, forgetter).routes(), *LiveRoutes(live).routes(), *TrajectoryApi(store).routes(),
            *RunStoryApi(store).routes(), *VersionApi(store, self.keys, state / "versions").routes(),
        ]  # fmt: skip
        told = {"actors": tuple, "describe": {}, **told}
        self.control = Control(
            store=store, registry=self.registry, orders=orders, retry=self.retry, fleet=lambda: self.fleet,
            halted=self.kill.reason, routes=routes, clock=clock, **told,
        )  # fmt: skip

    def app(self, keys: KeyRing | None = None) -> Starlette:
        return self.control.app(["127.0.0.1", "localhost"], keys)

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app()), base_url="http://127.0.0.1")

    async def obey(self, directive: Directive) -> None:
        await self.store.save([directive])
        self.ordered.append(directive)

    async def retry(self, key: str) -> bool:
        self.retried.append(key)
        return key == "known"

    async def _send(self, lessons: Sequence[Experience]) -> None:
        self.sent += lessons
