"""What the judge did and is worth, as metrics, as JSON and as a table."""

import json

import pytest
from daemon.cli.judge import show
from prometheus_client import CollectorRegistry, generate_latest

from actors.credit.attributor import Attributor, AttributorSettings
from actors.credit.budget import BudgetSettings
from actors.credit.calibration import CalibrationSettings
from actors.messages import Attribution, StepLabel, Trajectory
from actors.system.actor import Received
from actors.system.streams import TRAJECTORY_CLOSED
from daemon.api.control import _json
from daemon.collectors.credit import attributor_figures
from daemon.collectors.figures import Figures
from tests.support.travelling import plays

pytestmark = pytest.mark.anyio


class Judge:
    """Finds everything good, for 10 tokens."""

    name, rubric = "kind", "1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        labels = (StepLabel("GOOD"),) * len(trajectory.steps)
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=10, cost=0.25)


@pytest.fixture
async def attributor() -> Attributor:
    settings = AttributorSettings(
        budget=BudgetSettings(tokens_per_day=2500), concurrency=1,
        calibration=CalibrationSettings(share=1.0),
    )  # fmt: skip
    actor = Attributor(settings, judge=Judge())
    # A hundred twice, once of it blind; of the next hundred labels go before trials.
    batch = [Received(p.trajectory.id, TRAJECTORY_CLOSED, p.trajectory) for p in plays(200)]
    await actor.handle(batch[:100])
    await actor.handle(batch[100:])
    return actor


async def test_every_figure_is_scraped(attributor):
    registry = CollectorRegistry()
    registry.register(Figures(attributor_figures, attributor))
    generate_latest(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"evolved_attributor_{name}", labels)

    by = {who: value("trajectories_total", by=who) or 0.0 for who in ("judged", "cached")}
    abstained = value("abstained_total", reason="budget") or 0.0
    assert min(by["judged"], abstained) > 0
    assert sum(by.values()) + abstained == 200
    assert value("spent", what="tokens") == 2500.0
    assert value("spent", what="money") == 62.5
    assert value("lag_seconds_count") == 200.0
    assert (value("budget_used_up"), value("judge_away")) == (1.0, 0.0)
    # It knows nothing: whatever it saw, it found good.
    assert value("weight", judge="kind", rubric="1", tenant="*") == 0.0


async def test_the_report_is_shown_as_the_control_api_gives_it(attributor, capsys):
    report = json.loads(_json(attributor.report()).body)
    show(report)
    told = capsys.readouterr().out
    assert "2,500 in the last day of 2,500" in told
    assert "the budget of tokens per day is spent: trajectories abstain" in told
    for column in ("kind 1", "default", "budget", "2,500"):
        assert column in told
    page = next(page for page in report["judges"] if page["tenant"] == "*")
    assert page["outcomes"]["precision_bad"] is None
    assert page["outcomes"]["precision_good"]["low"] < page["outcomes"]["precision_good"]["value"]
    assert page["tokens"] == 2500


def test_a_daemon_that_is_not_there_is_named(capsys):
    from daemon.cli.main import main

    assert main(["judge", "report", "--set", "control.port=1"]) == 2
    assert "evolved run" in capsys.readouterr().err
