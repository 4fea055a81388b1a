"""What the parts of the daemon count, on `/metrics`, in the order in which a call comes through them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from actors.credit.attributor import Attributor
from actors.curation.curator import Curator
from actors.deployment.swapper import Swapper
from actors.experience.experiencer import Experiencer
from actors.experience.navigator import Navigator
from actors.monitoring.sentinel import Sentinel
from actors.rollout.rollout import Rollout
from actors.statistics.intervals import wilson
from actors.store import Store
from actors.tasks.questioner.actor import Questioner
from actors.trajectories.assembler import Assembler
from daemon.figures import counter, gauge, split
from daemon.live.registry import Live


def assembler_figures(assembler: Assembler) -> Iterator[Metric]:
    yield counter(
        "evolved_links", "Calls in closed trajectories, by what linked them to what came before and how sure that is.",
        {(signal, f"{confidence:g}"): number for (signal, confidence), number in assembler.links.items()},
        "signal", "confidence",
    )  # fmt: skip
    yield counter("evolved_assembler_records", "What the assembler met.", assembler.counts, "what")
    yield gauge("evolved_assembler_open_calls", "Calls in trajectories that are not over.", assembler.open_calls)


def attributor_figures(attributor: Attributor) -> Iterator[Metric]:
    abstained, labelled = split(attributor.counts, "abstained_")
    yield counter(
        "evolved_attributor_trajectories", "Trajectories (told_steps: steps), by who labelled them.", labelled, "by"
    )
    yield counter(
        "evolved_attributor_abstained", "Trajectories without a label on any step, by reason.", abstained, "reason"
    )
    spent = attributor.stats.today
    yield gauge(
        "evolved_attributor_spent", "What the judge cost in the last day.",
        {"tokens": spent.tokens_day, "money": spent.money_day}, "what",
    )  # fmt: skip
    yield gauge(
        "evolved_attributor_budget_used_up",
        "1: a limit of the judge's budget is reached.",
        bool(attributor.stats.used_up()),
    )
    yield gauge(
        "evolved_attributor_judge_away",
        "1: the judge does not answer and is asked now and then.",
        attributor.asking.away,
    )
    yield from attributor.lag.collect()
    yield gauge(
        "evolved_attributor_weight", "How far the judge's labels are trusted, 0 to 1; tenant *: all of them.",
        {(page.judge, page.rubric, page.tenant): 1.0 if page.weight is None else page.weight
         for page in attributor.stats.all()},
        "judge", "rubric", "tenant",
    )  # fmt: skip


_TENANTS = 64
"""Tenants with figures of their own; a label for every one of thousands would drown whoever scrapes."""
OTHERS = "(others)"


def experience_figures(experiencer: Experiencer) -> Iterator[Metric]:
    yield gauge(
        "evolved_experience_lessons", "Lessons in memory.", _bounded(experiencer.pool), "tenant", "kind", "state"
    )
    yield counter(
        "evolved_experience_events", "What became of lessons and of what they are drawn from.", experiencer.counts,
        "what",
    )  # fmt: skip


def _bounded(pool: Mapping[tuple[str, str, str], int]) -> Counter[tuple[str, str, str]]:
    """The figures of the tenants with most lessons, and of all others together."""
    held = Counter[str]()
    for (tenant, _, _), number in pool.items():
        held[tenant] += number
    named = {tenant for tenant, _ in held.most_common(_TENANTS)}
    shown = Counter[tuple[str, str, str]]()
    for (tenant, kind, state), number in pool.items():
        shown[tenant if tenant in named else OTHERS, kind, state] += number
    return shown


_NAVIGATOR = {
    "lessons": "Lessons that can be found.",
    "waiting": "Texts of lessons that have no vector yet: found by words alone.",
}


def navigator_figures(navigator: Navigator) -> Iterator[Metric]:
    figures = navigator.figures
    events = {name: number for name, number in figures.items() if name not in _NAVIGATOR}
    yield counter("evolved_navigator_events", "What happened to lessons and vectors.", events, "what")
    for name, about in _NAVIGATOR.items():
        yield gauge(f"evolved_navigator_{name}", about, figures[name])


_CURATOR = {
    "waiting": "Trajectories that may still be trained on.",
    "guesses": "Unreported trajectories that may be trained on with a provisional outcome.",
    "waiting_groups": "Sandbox groups that could be ordered now.",
    "clusters": "Clusters of goals whose outcomes are remembered.",
}


def outcome_figures(store: Store) -> Iterator[Metric]:
    about = "Reports of how a run went, by what they did to its outcome."
    yield counter("evolved_outcome_reports", about, store.reports, "did")


def task_figures(tasks: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    yield counter(
        "evolved_task_events", "What became of tasks that were made here, and of failures.", task_counts(tasks), "what"
    )


def task_counts(tasks: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What was counted, by who did."""
    return {f"{who}_{name}": number for who, counts in tasks.items() for name, number in counts.items()}


def rollout_figures(rollout: Rollout) -> Iterator[Metric]:
    yield counter("evolved_rollout_lost", "Sandbox episodes that came to nothing, by reason.", rollout.lost, "reason")
    yield counter(
        "evolved_rollout_cut", "Sandbox episodes that the environment did not end, by what did.", rollout.cut, "what"
    )
    yield counter("evolved_rollout_played", "Sandbox episodes that were emitted.", rollout.played)
    yield counter("evolved_rollout_retried", "Attempts that were made again.", rollout.retried)
    yield counter(
        "evolved_rollout_tasks", "Task numbers of the environment, by what became of them.", rollout.tasks, "what"
    )
    yield gauge("evolved_rollout_waiting", "Task numbers that wait for their kind to be planned.", rollout.waiting)


def questioner_figures(questioner: Questioner) -> Iterator[Metric]:
    state = questioner.state
    dropped, did = split(state.counts, "dropped.")
    events = {**did, "offered": questioner.offered}
    yield counter("evolved_questioner_events", "What the questioner did.", events, "what")
    yield counter("evolved_questioner_dropped", "Proposed tasks that were not kept, by reason.", dropped, "reason")
    yield gauge("evolved_questioner_worlds", "Worlds looked at.", state.round)
    yield gauge("evolved_questioner_programs", "Programs that are known.", len(state.library))


def curator_figures(curator: Curator) -> Iterator[Metric]:
    for name, about in _CURATOR.items():
        yield gauge(f"evolved_curator_{name}", about, curator.figures[name])


_AGENTS = 20
"""The busiest, which have series of their own: names of agents come from outside, and are without end."""


def provisional_figures(curator: Curator) -> Iterator[Metric]:
    model = curator.provisional.model
    serving = model.serving
    yield gauge("evolved_outcome_model_outcomes", "Reported outcomes that the outcome model learns from.", len(model))
    yield gauge(
        "evolved_outcome_model_version", "The outcome model's version; 0 without one.", serving.number if serving else 0
    )
    skills = {} if serving is None else {"all": serving.skill, **dict(list(serving.agents.items())[:_AGENTS])}
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
        {gap.agent: float(gap.overrated) for gap in model.gaps()[-_AGENTS:]}, "agent",
    )  # fmt: skip
    yield counter(
        "evolved_provisional_records", "Runs and what followed them, by what became of them; the model's fits.",
        {name.removeprefix("provisional_"): number for name, number in curator.provisional.figures.items()}, "what",
    )  # fmt: skip


def fleet_figures(swapper: Swapper) -> Iterator[Metric]:
    fleet = swapper.fleet
    for name, about, read in (
        ("version", "Weight version served, -1 if it does not answer.", lambda one: _known(one.version)),
        ("paused", "1 while it is paused.", lambda one: one.paused),
        ("canary_share", "Of new trajectories, while it is the canary.", lambda one: one.canary_share),
    ):
        seen = {engine: read(view) for engine, view in fleet.engines.items()}
        yield gauge(f"evolved_engine_{name}", about, seen, "engine")
    yield gauge("evolved_engine_stable_version", "What should serve.", _known(fleet.stable))
    yield gauge(
        "evolved_engine_stable_since_timestamp_seconds", "When what should serve was first served, 0 if unknown.",
        fleet.stable_since,
    )  # fmt: skip
    yield from swapper.pauses.collect()
    yield counter("evolved_swapper_unsigned", "Verdicts and orders without a valid signature.", swapper.unsigned)
    yield counter(
        "evolved_swapper_pins_unwritten", "Times that the versions that must stay could not be noted.", swapper.unpinned
    )
    yield counter("evolved_swapper_routes_unwritten", "Times that the tap could not be told.", swapper.untold)


def _known(version: int | None) -> int:
    return -1 if version is None else version


def sentinel_figures(sentinel: Sentinel) -> Iterator[Metric]:
    values = {
        (monitor, name): value
        for monitor, readings in sentinel.readings().items()
        for name, value in readings.items()
    }  # fmt: skip
    yield gauge("evolved_sentinel_value", "What a monitor read when it last looked.", values, "monitor", "value")
    # By place, not by number: a version a series would be one more each hour, for ever.
    versions = sentinel.versions()
    bounds = {place: wilson(one.solved, one.outcomes) for place, one in versions.items()}
    for name, about, numbers in (
        ("number", "Weight version that serves, that served before it, and that served first.",
         {place: one.version for place, one in versions.items()}),
        ("outcomes", "Its newest reported outcomes, which its success is of.",
         {place: one.outcomes for place, one in versions.items()}),
        ("success", "Share of successes among them.",
         {place: one.solved / one.outcomes for place, one in versions.items()}),
        ("success_low", "Lower limit of that, Wilson, 95 %.", {place: low for place, (low, _) in bounds.items()}),
        ("success_high", "Upper limit of that.", {place: high for place, (_, high) in bounds.items()}),
    ):  # fmt: skip
        yield gauge(f"evolved_version_{name}", about, numbers, "place")
    yield counter("evolved_sentinel_findings", "Findings acted on, by what was done.", sentinel.told, "cause", "action")
    yield gauge(
        "evolved_sentinel_last_finding_seconds",
        "When a cause was last acted on, Unix seconds, by what was done.",
        {(told.cause, told.action): told.time for told in sentinel.recent},
        "cause", "action",
    )  # fmt: skip
    yield gauge(
        "evolved_sentinel_engines_unreachable", "Engines that did not answer the last time.", len(sentinel.unreachable)
    )


def live_figures(live: Live) -> Iterator[Metric]:
    health = live.health()
    for name, about, read in (
        ("up", "1 if it answered when it was last asked.", lambda one: one.ok),
        ("tools", "Tools that it offers.", lambda one: one.tools),
        ("last_success_seconds", "Unix time of its last good answer, 0: none.", lambda one: one.last_success or 0.0),
    ):
        yield gauge(
            f"evolved_live_api_{name}", about, {(one.name, one.kind): read(one) for one in health}, "api", "kind"
        )
    guarded = list(live.guarded())
    calls = {(one.name, what): number for one in guarded for what, number in one.counts.items()}
    yield counter("evolved_live_api_calls", "Calls by what they came to or met with.", calls, "api", "what")
    scrubbed = {(one.name, kind): number for one in guarded for kind, number in one.scrubbed.items()}
    yield counter("evolved_live_api_scrubbed", "Secrets taken out of answers.", scrubbed, "api", "kind")
