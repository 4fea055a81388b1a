"""`JudgeStats`: what every judge has cost, and how far it can be trusted, by tenant; kept through restarts.

One page for each judge, rubric and tenant, and one for each judge over all tenants. A tenant's own evidence gives its
weight; without enough of it the judge's over all tenants does.
"""

import hashlib
from collections.abc import Mapping
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


class Page(msgspec.Struct, kw_only=True):
    """A judge in a tenant's traffic: what it cost, and the newest evidence of how good it is."""

    judge: str
    rubric: str
    tenant: str
    tokens: float = 0.0
    money: float = 0.0
    weight: float = 1.0
    weighed: bool = False
    """The weight follows from evidence on this page; else from the judge's page over all tenants, or it is 1."""
    outcomes: list[Observation] = []


class JudgeStats:
    """The pages by state key, least recently used first."""

    def __init__(self) -> None:
        self._pages: Bounded[str, Page] = Bounded(_PAGES)
        self._dirty: set[str] = set()

    def pages(self, judge: str, rubric: str, tenant: str) -> tuple[Page, Page]:
        """The tenant's page and the judge's over all tenants, to be written on."""
        return self._page(judge, rubric, tenant), self._page(judge, rubric, ALL)

    def weight(self, judge: str, rubric: str, tenant: str) -> float:
        """How far the judge can be trusted with the tenant's traffic, 0 to 1."""
        for whose in (tenant, ALL):
            page = self._pages.get(_key(judge, rubric, whose))
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

    def all(self) -> list[Page]:
        """The pages, by judge, rubric and tenant."""
        return sorted(self._pages.values(), key=lambda page: (page.judge, page.rubric, page.tenant))

    def report(self) -> list[dict[str, Any]]:
        """The same for people: figures in the place of evidence."""
        return [{**msgspec.structs.asdict(page), "outcomes": figures(page.outcomes)} for page in self.all()]

    def take(self) -> Mapping[str, bytes]:
        """Pages that have changed since the last time, by state key; their weights follow from what was observed."""
        changed = {key: self._pages[key] for key in self._dirty & self._pages.keys()}
        self._dirty.clear()
        for page in changed.values():
            found = weight_of(page.outcomes)
            if found is not None:
                page.weight, page.weighed = found, True
        return {key: msgspec.msgpack.encode(page) for key, page in changed.items()}

    def load(self, kept: Mapping[str, bytes]) -> None:
        """Go on from pages of an earlier life, by state key."""
        for key, data in kept.items():
            self._pages[key] = msgspec.msgpack.decode(data, type=Page)

    def _page(self, judge: str, rubric: str, tenant: str) -> Page:
        key = _key(judge, rubric, tenant)
        self._pages[key] = self._pages.get(key) or Page(judge=judge, rubric=rubric, tenant=tenant)
        self._dirty.add(key)
        return self._pages[key]


def _key(*whose: str) -> str:
    """State key of the page of this judge, rubric and tenant."""
    return PREFIX + hashlib.sha256("\0".join(whose).encode()).hexdigest()[:24]
