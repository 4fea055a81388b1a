"""The panel: who agrees counts, who is silent or away does not, and fewer judges never decide for more."""

import anyio
import pytest

from actors.messages import Attribution, Label, StepLabel, Trajectory
from actors.ports.errors import AdapterNotSetUp, ModelUnavailable
from adapters.judges.panel import PanelJudge, make
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.support.travelling import call, trajectory

pytestmark = pytest.mark.anyio
RUN = trajectory([(call("find_person", name="Mia"), '{"pid": "K1"}')] * 3, goal="Find Mia.")
G, B, A = "GOOD", "BAD", "ABSTAIN"


class Says:
    """A judge of fixed opinions."""

    def __init__(self, name: str, *labels: Label, raises: Exception | None = None, hangs: bool = False) -> None:
        self.name, self.rubric = name, f"{name}-1"
        self._labels, self._raises, self._hangs = labels, raises, hangs

    async def label(self, trajectory: Trajectory) -> Attribution:
        if self._hangs:
            await anyio.sleep_forever()
        if self._raises:
            raise self._raises
        labels = tuple(StepLabel(label, 0.8, "so") for label in self._labels)
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=10, cost=0.5, prompt_hash="h")


GONE = ModelUnavailable("gone")
VOTES = {
    "more than half of all": ([Says("a", G, G, G), Says("b", G, B, A), Says("c", B, B, A)], {}, [G, B, A], {}),
    "one is away": ([Says("a", G, G, B), Says("b", G, B, B), Says("c", raises=GONE)], {}, [G, A, B], {"away_c": 1}),
    "one hangs": ([Says("a", G, G, G), Says("b", G, G, G), Says("c", hangs=True)], {}, [G, G, G], {"away_c": 1}),
    "one breaks and one miscounts": (
        [Says("a", G, G, G), Says("b", G, G, B), Says("c", G), Says("d", raises=KeyError("x"))], {"quorum": 3},
        [A, A, A], {"failed_c": 1, "failed_d": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("members", "options", "labels", "counted"), VOTES.values(), ids=VOTES)
async def test_a_label_needs_more_than_half_of_all_members(members, options, labels, counted):
    panel = PanelJudge(members, **{"timeout": 30.0, **options})
    assert [label.label for label in (await panel.label(RUN)).labels] == labels
    assert counted.items() <= panel.counts.items()


async def test_the_reason_says_who_said_what_and_confidence_falls_with_dissent():
    panel = PanelJudge([Says("a", G, G, G), Says("b", G, G, A), Says("c", B, G, A)])
    found = await panel.label(RUN)
    assert found.labels[0].reason == "2 of 3; a GOOD: so; b GOOD: so; c BAD: so"
    assert found.labels[0].confidence < found.labels[1].confidence == pytest.approx(0.8)
    assert (found.tokens, found.cost) == (30, 1.5)
    assert found.rubric == "panel-1(2 of a a-1; b b-1; c c-1)"
    assert (panel.counts["agreed"], panel.counts["short"], panel.counts["disagreed"]) == (2, 1, 0)


async def test_without_a_quorum_of_members_the_panel_is_away_itself():
    away = [Says(name, raises=ModelUnavailable("gone")) for name in ("b", "c")]
    with pytest.raises(ModelUnavailable, match="gone"):
        await PanelJudge([Says("a", G, G, G), *away]).label(RUN)


def test_panels_that_cannot_vote_are_refused():
    a, b = Says("a"), Says("b")
    for members, quorum in (([a], 0), ([a, a], 0), ([a, b], 1), ([a, b], 3)):
        with pytest.raises(AdapterNotSetUp):
            PanelJudge(members, quorum=quorum)
    for options in ({}, {"members": []}, {"members": [{"judge": "nobody"}]}, {"members": [{"judge": "rules"}] * 2}):
        with pytest.raises(AdapterNotSetUp):
            make(**options)
