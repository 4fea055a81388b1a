"""`JudgeStats`: what every judge has done and cost, and how far it can be trusted, by tenant; kept through restarts.

One page for each judge, rubric and tenant, and one for each judge over all tenants. A tenant's own evidence gives its
weight; without enough of it the judge's over all tenants does.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from actors.credit.calibration import WINDOW, Observation, figures, observed, weight_of
from actors.messages import Attribution, Trajectory
from actors.messages.bounded import Bounded
from actors.statistics.parties import FairWindow, party_of

PREFIX = "attributor.page."
"""Of the state keys that pages are kept under."""
ALL = "*"
"""Tenant of the page over all tenants."""
_PAGES = 512
_Key = tuple[str, str, str]


class Page(msgspec.Struct, kw_only=True):
    """A judge in a tenant's traffic: what it did, and the newest evidence of how good that was."""

    judge: str
    rubric: str
    tenant: str
    since: float
    """Unix seconds."""
    judged: int = 0
    """Trajectories, as all that is counted."""
    cached: int = 0
    """Labelled as the same trajectory was before."""
    abstained: dict[str, int] = {}
    """No step got a label, by reason; `not_sampled` is one."""
    tokens: float = 0.0
    money: float = 0.0
    weight: float = 1.0
    weighed: bool = False
    """The weight follows from evidence on this page; else from the judge's page over all tenants, or it is 1."""
    outcomes: list[Observation] = []


class JudgeStats:
    """The pages, least recently used first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pages: Bounded[_Key, Page] = Bounded(_PAGES)
        self._dirty: set[_Key] = set()
        self._unsettled: set[_Key] = set()

    def pages(self, judge: str, rubric: str, tenant: str) -> tuple[Page, Page]:
        """The tenant's page and the judge's over all tenants, to be written on."""
        return self._page(judge, rubric, tenant), self._page(judge, rubric, ALL)

    def weight(self, judge: str, rubric: str, tenant: str) -> float:
        """How far the judge can be trusted with the tenant's traffic, 0 to 1."""
        for key in ((judge, rubric, tenant), (judge, rubric, ALL)):
            page = self._pages.get(key)
            if page is not None and page.weighed:
                return page.weight
        return 1.0

    def observe(self, found: Attribution, run: Trajectory, *, good: bool) -> None:
        """What `found` said of a run that was shown blind, beside how that went."""
        party = party_of(run.tenant, run.caller) if run.source == "production" else f"own:{run.id}"
        seen = observed(found.labels, good=good, party=party)
        for page in self.pages(found.judge, found.rubric, run.tenant):
            page.outcomes.append(seen)
            if len(page.outcomes) > WINDOW:
                page.outcomes[:] = FairWindow(WINDOW, lambda one: one.party, page.outcomes)
            self._unsettled.add((page.judge, page.rubric, page.tenant))

    def settle(self) -> None:
        """Let weights follow from what was observed."""
        for key in self._unsettled & self._pages.keys():
            page = self._pages[key]
            found = weight_of(page.outcomes)
            if found is not None:
                page.weight, page.weighed = found, True
        self._unsettled.clear()

    def all(self) -> list[Page]:
        """The pages, by judge, rubric and tenant."""
        return [page for _, page in sorted(self._pages.items())]

    def report(self) -> list[dict[str, Any]]:
        """The same for people: figures in the place of evidence."""
        return [
            {**msgspec.structs.asdict(page), "outcomes": msgspec.to_builtins(figures(page.outcomes))}
            for page in self.all()
        ]

    def take(self) -> Mapping[str, bytes]:
        """Pages that have changed since the last time, by state key."""
        dirty, self._dirty = self._dirty, set()
        return {_state_key(key): msgspec.msgpack.encode(self._pages[key]) for key in dirty if key in self._pages}

    def put_back(self, taken: Iterable[str]) -> None:
        """What was taken could not be kept: it is taken again."""
        keys = set(taken)
        self._dirty |= {key for key in self._pages if _state_key(key) in keys}

    def load(self, kept: Iterable[bytes]) -> None:
        """Go on from pages of an earlier life."""
        for data in kept:
            page = msgspec.msgpack.decode(data, type=Page)
            self._pages[page.judge, page.rubric, page.tenant] = page

    def _page(self, judge: str, rubric: str, tenant: str) -> Page:
        key = (judge, rubric, tenant)
        self._pages[key] = self._pages.get(key) or Page(judge=judge, rubric=rubric, tenant=tenant, since=self._clock())
        self._dirty.add(key)
        return self._pages[key]


def _state_key(key: _Key) -> str:
    """Where the page of this judge, rubric and tenant is kept."""
    return PREFIX + hashlib.sha256("\0".join(key).encode()).hexdigest()[:24]
