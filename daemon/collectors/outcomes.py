"""Metrics of what nobody reported: the outcome model's skill and weight, signals by agent, what was foretold."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from actors.curation.curator import Curator
from daemon.collectors.figures import counter, gauge

AGENTS = 20
"""The busiest, which have series of their own: names of agents come from outside, and are without end."""


def provisional_figures(curator: Curator) -> Iterator[Metric]:
    model = curator.provisional.model
    serving = model.serving
    yield gauge("evolved_outcome_model_outcomes", "Reported outcomes that the outcome model learns from.", len(model))
    yield gauge(
        "evolved_outcome_model_version", "The outcome model's version; 0 without one.", serving.number if serving else 0
    )
    skills = {} if serving is None else {"all": serving.skill, **dict(list(serving.agents.items())[:AGENTS])}
    yield gauge(
        "evolved_outcome_model_skill", "Brier skill of held-out folds over the agent's base rate.",
        {agent: skill.skill for agent, skill in skills.items()}, "agent",
    )  # fmt: skip
    yield gauge(
        "evolved_outcome_model_skill_low", "Its lower bound; at or below zero the model has no weight.",
        {agent: skill.low for agent, skill in skills.items()}, "agent",
    )  # fmt: skip
    yield gauge(
        "evolved_outcome_model_calibration_error", "Mean distance of chances from what was reported.",
        {agent: skill.calibration for agent, skill in skills.items()}, "agent",
    )  # fmt: skip
    yield gauge(
        "evolved_outcome_model_weight", "How far a provisional outcome counts, 0 to 1.",
        {agent: model.weight(agent) for agent in skills if agent != "all"}, "agent",
    )  # fmt: skip
    records = [one for one in model.records() if one.agent in skills]
    yield gauge(
        "evolved_signal_coverage", "Share of an agent's runs that a signal speaks of.",
        {(one.agent, one.signal): one.coverage for one in records}, "agent", "signal",
    )  # fmt: skip
    yield gauge(
        "evolved_signal_precision", "How often a signal was right where an outcome was reported.",
        {(one.agent, one.signal): one.precision for one in records if one.known}, "agent", "signal",
    )  # fmt: skip
    yield gauge(
        "evolved_signal_quarantined", "Signals whose precision has fallen, and that are not listened to.",
        {(one.agent, one.signal): 1 for one in records if one.quarantined}, "agent", "signal",
    )  # fmt: skip
    yield gauge(
        "evolved_agent_overrated", "The newest weights are foretold to do better than is reported of the same runs.",
        {gap.agent: float(gap.overrated) for gap in model.gaps()[-AGENTS:]}, "agent",
    )  # fmt: skip
    yield counter(
        "evolved_provisional_records", "Runs and what followed them, by what became of them; the model's fits.",
        {name.removeprefix("provisional_"): number for name, number in curator.provisional.figures.items()}, "what",
    )  # fmt: skip
