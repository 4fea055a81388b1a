"""`JudgeStats`: what every judge has done and cost, and how far it can be trusted, by tenant; kept through restarts.

One page for each judge, rubric and tenant, and one for each judge over all tenants. A tenant's own evidence gives its
weight; without enough of it the judge's over all tenants does.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from actors.credit.calibration import Calibration, Figures, Series, figures, observed
from actors.messages import Attribution, StepLabel, Trajectory
from actors.messages.bounded import Bounded
from actors.statistics.parties import party_of

PREFIX = "attributor.page."
"""Of the state keys that pages are kept under."""
ALL = "*"
"""Tenant of the page over all tenants."""
_PAGES = 512
_log = structlog.get_logger(__name__)


class Page(msgspec.Struct, kw_only=True):
    """A judge in a tenant's traffic. What is counted are trajectories."""

    judge: str
    rubric: str
    tenant: str
    since: float
    """Unix seconds."""
    judged: int = 0
    cached: int = 0
    """Labelled as the same trajectory was before."""
    abstained: dict[str, int] = {}
    """No step got a label, by reason; `not_sampled` is one."""
    tokens: float = 0.0
    money: float = 0.0
    calibration: Calibration = msgspec.field(default_factory=Calibration)


class PageReport(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it is shown."""

    judge: str
    rubric: str
    tenant: str
    since: float
    judged: int
    cached: int
    not_sampled: int
    abstained: dict[str, int]
    tokens: float
    money: float
    outcomes: Figures
    steps: Figures
    """Both of the newest window."""
    weight: float
    weighed: bool
    """The weight follows from evidence on this page; else from the judge's page over all tenants, or it is 1."""
    weight_since: float


class JudgeStats:
    """The pages, least recently used first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pages: Bounded[tuple[str, str, str], Page] = Bounded(_PAGES)
        self._dirty: set[tuple[str, str, str]] = set()
        self._unsettled: set[tuple[str, str, str]] = set()

    def pages(self, judge: str, rubric: str, tenant: str) -> tuple[Page, Page]:
        """The tenant's page and the judge's over all tenants, to be written on."""
        return self._page(judge, rubric, tenant), self._page(judge, rubric, ALL)

    def weight(self, judge: str, rubric: str, tenant: str) -> float:
        """How far the judge can be trusted with the tenant's traffic, 0 to 1."""
        for key in ((judge, rubric, tenant), (judge, rubric, ALL)):
            page = self._pages.get(key)
            if page is not None and page.calibration.weighed:
                return page.calibration.weight
        return 1.0

    def outcome(self, found: Attribution, run: Trajectory, *, good: bool) -> None:
        """The judge labelled, blind, a trajectory whose outcome is known."""
        self._observe(found, found.labels, run, lambda page: page.calibration.outcomes, good)

    def step(self, found: Attribution, number: int, run: Trajectory, *, good: bool) -> None:
        """The judge labelled a step that somebody reported on."""
        self._observe(found, found.labels[number : number + 1], run, lambda page: page.calibration.steps, good)

    def settle(self) -> None:
        """Let weights follow from what was observed; log those that moved."""
        for key in self._unsettled:
            page = self._pages.get(key)
            if page is not None and page.calibration.settle(self._clock()):
                _log.warning(
                    "judge_weight", judge=page.judge, rubric=page.rubric, tenant=page.tenant,
                    weight=round(page.calibration.weight, 3),
                )  # fmt: skip
        self._unsettled.clear()

    def report(self) -> list[PageReport]:
        """All pages, by judge, rubric and tenant."""
        return [_shown(page) for _, page in sorted(self._pages.items())]

    def take(self) -> Mapping[str, bytes]:
        """Pages that have changed since the last time, by state key."""
        dirty, self._dirty = self._dirty, set()
        return {state_key(key): msgspec.msgpack.encode(self._pages[key]) for key in dirty if key in self._pages}

    def put_back(self, taken: Iterable[str]) -> None:
        """What was taken could not be kept: it is taken again."""
        keys = set(taken)
        self._dirty |= {key for key in self._pages if state_key(key) in keys}

    def load(self, kept: Iterable[bytes]) -> None:
        """Go on from pages of an earlier life."""
        for data in kept:
            page = msgspec.msgpack.decode(data, type=Page)
            self._pages[page.judge, page.rubric, page.tenant] = page

    def _page(self, judge: str, rubric: str, tenant: str) -> Page:
        key = (judge, rubric, tenant)
        self._pages[key] = self._pages.get(key) or Page(
            judge=judge, rubric=rubric, tenant=tenant, since=self._clock(), abstained={}
        )
        self._dirty.add(key)
        return self._pages[key]

    def _observe(
        self,
        found: Attribution,
        labels: Sequence[StepLabel],
        run: Trajectory,
        series: Callable[[Page], Series],
        good: bool,
    ) -> None:
        party = party_of(run.tenant, run.caller) if run.source == "production" else f"own:{run.id}"
        seen = observed(labels, good=good, at=self._clock(), party=party)
        for page in self.pages(found.judge, found.rubric, run.tenant):
            series(page).add(seen)
            self._unsettled.add((page.judge, page.rubric, page.tenant))


def state_key(key: tuple[str, str, str]) -> str:
    """Where the page of this judge, rubric and tenant is kept."""
    return PREFIX + hashlib.sha256("\0".join(key).encode()).hexdigest()[:24]


def _shown(page: Page) -> PageReport:
    kept = page.calibration
    reasons = {reason: count for reason, count in sorted(page.abstained.items()) if reason != "not_sampled"}
    return PageReport(
        judge=page.judge, rubric=page.rubric, tenant=page.tenant, since=page.since, judged=page.judged,
        cached=page.cached, not_sampled=page.abstained.get("not_sampled", 0), abstained=reasons, tokens=page.tokens,
        money=page.money, outcomes=figures(kept.outcomes.recent), steps=figures(kept.steps.recent),
        weight=kept.weight, weighed=kept.weighed, weight_since=kept.weight_since,
    )  # fmt: skip
