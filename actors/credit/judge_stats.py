"""`JudgeStats`: what every judge has cost, by tenant and today, and how far it can be trusted; kept through restarts.

One page for each judge, rubric and tenant, and one for each judge over all tenants. A tenant's own evidence gives its
weight; without enough of it the judge's over all tenants does. What a day (UTC) may cost is limited in tokens; its cost
in money is told.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from actors.credit.calibration import WINDOW, Observation, figures, observed, weight_of
from actors.messages import Attribution, Trajectory
from actors.messages.bounded import Bounded
from actors.statistics.parties import FairWindow, party_of

STATE = "attributor."
"""What the keys begin with that pages and today's costs are kept under."""
TODAY = f"{STATE}budget"
ALL = "*"
"""Tenant of the page over all tenants."""
_PAGES = 512
_DAY = 86_400.0


class Spent(msgspec.Struct, kw_only=True):
    """What judgements have cost today."""

    day: int = 0
    """Since 1970."""
    tokens_day: float = 0.0
    money_day: float = 0.0


class Page(msgspec.Struct, kw_only=True):
    """A judge in a tenant's traffic: what it cost, and the newest evidence of how good it is."""

    judge: str
    rubric: str
    tenant: str
    tokens: float = 0.0
    money: float = 0.0
    weight: float | None = None
    """None: there is not enough evidence on this page; it is that of the judge's over all tenants then, or 1."""
    outcomes: list[Observation] = []


class JudgeStats:
    """The pages by state key, least recently used first; and what today has cost of `limit` tokens, 0: no limit."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._spent = Spent()
        self._pages: Bounded[str, Page] = Bounded(_PAGES)
        self._dirty: set[str] = set()

    @property
    def today(self) -> Spent:
        """What today has cost by now."""
        day = int(self._clock() // _DAY)
        if self._spent.day != day:
            self._spent = Spent(day=day)
        return self._spent

    def used_up(self) -> str:
        """Which limit is reached, empty if none. What is under way then is paid for beside it."""
        return "tokens per day" if self._limit and self.today.tokens_day >= self._limit else ""

    def spent(self, found: Attribution, tenant: str) -> None:
        """An answer cost this much."""
        if not found.tokens and not found.cost:
            return
        self.today.tokens_day += found.tokens
        self.today.money_day += found.cost
        for page in self.pages(found.judge, found.rubric, tenant):
            page.tokens += found.tokens
            page.money += found.cost

    def pages(self, judge: str, rubric: str, tenant: str) -> tuple[Page, Page]:
        """The tenant's page and the judge's over all tenants, to be written on."""
        return self._page(judge, rubric, tenant), self._page(judge, rubric, ALL)

    def weight(self, judge: str, rubric: str, tenant: str) -> float:
        """How far the judge can be trusted with the tenant's traffic, 0 to 1."""
        for whose in (tenant, ALL):
            page = self._pages.get(_key(judge, rubric, whose))
            if page is not None and page.weight is not None:
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

    def all(self) -> list[Page]:
        """The pages, by judge, rubric and tenant."""
        return sorted(self._pages.values(), key=lambda page: (page.judge, page.rubric, page.tenant))

    def report(self) -> list[dict[str, Any]]:
        """The same for people: figures in the place of evidence."""
        return [{**msgspec.structs.asdict(page), "outcomes": figures(page.outcomes)} for page in self.all()]

    def take(self) -> Mapping[str, bytes]:
        """Pages that have changed since the last time, with today's costs, by state key; their weights follow from what
        was observed."""
        changed = {key: self._pages[key] for key in self._dirty & self._pages.keys()}
        self._dirty.clear()
        for page in changed.values():
            found = weight_of(page.outcomes)
            page.weight = page.weight if found is None else found
        pages = {key: msgspec.msgpack.encode(page) for key, page in changed.items()}
        return {**pages, **self.costs()} if pages else {}

    def costs(self) -> Mapping[str, bytes]:
        """What today has cost, by state key."""
        return {TODAY: msgspec.msgpack.encode(self.today)}

    def load(self, kept: Mapping[str, bytes]) -> None:
        """Go on from what an earlier life kept, by state key."""
        for key, data in kept.items():
            if key == TODAY:
                self._spent = msgspec.msgpack.decode(data, type=Spent)
            else:
                self._pages[key] = msgspec.msgpack.decode(data, type=Page)

    def _page(self, judge: str, rubric: str, tenant: str) -> Page:
        key = _key(judge, rubric, tenant)
        self._pages[key] = self._pages.get(key) or Page(judge=judge, rubric=rubric, tenant=tenant)
        self._dirty.add(key)
        return self._pages[key]


def _key(*whose: str) -> str:
    """State key of the page of this judge, rubric and tenant."""
    return f"{STATE}page." + hashlib.sha256("\0".join(whose).encode()).hexdigest()[:24]
