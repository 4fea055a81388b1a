"""The figures of `evolved plan`: what a model takes to learn from so much traffic, each with what it is from. Pure.

Memory, arithmetic and bytes are `learner.sizing`'s; how often there is an update, and what judge and shadow are asked,
follows from the settings of the loop. What was measured, and how far the formulas were off, is in docs/measured.md.
"""

import math
from typing import Literal

import msgspec

from actors.credit.attributor import BLIND_SHARE
from actors.gate.replay_trial import SCORED
from actors.kinds.holdout import SHARE
from adapters.judges.windows import Shape as Shown
from daemon.composition import values
from daemon.processes.learner_settings import learner
from daemon.settings.pace import PACES
from daemon.settings.tables import Config
from learner.fit import GIGA, needed, remedies, settled
from learner.memory import STATE_EVERY
from learner.sizing import (
    Shape,
    Training,
    Work,
    flops,
    host_memory,
    memory,
    optimizer_bytes,
    peak_flops,
    training,
    version_bytes,
)
from learner.trainers.micro import LEAST, PROBE_TOKENS

DAY = 86400.0
USED = 0.61
"""Of reported runs, those that an update learned from: the median of 48 simulated cells, 0.32 to 0.82; the faster they
come, the less (docs/results/standstill.json)."""
CPU_RATE = 82e9
"""FLOP/s of an update in fp32 on one core of the machine that docs/measured.md was measured on, of 24M parameters."""
DIGEST_RATE = 1.77e9
"""Bytes a second that sha256 reads on one core there; a file is hashed while it is written."""
LOAD_RATE = 404e6 / 0.350
"""Bytes a second of vLLM's `reload_weights` on that machine, of a file of 404 MB (docs/results/swap-200m.json)."""
RUBRIC, LABEL, STEP_CHARACTERS = 600, 50, 4.0
"""Tokens of the judge's rubric for one call, of its answer for one step; characters of a token."""
Basis = Literal["measured", "counted", "formula", "assumed"]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned for; the defaults are assumptions, and are said to be."""

    gpus: int = 8
    gpu: str = "A100"
    gpu_gb: float = 80.0
    machine_gb: float = 0.0
    """Of the machine's own memory; 0 where nobody said."""
    utilisation: float = 0.3
    """Of the GPUs' peak, the reference's, the guard's and the recomputed work counted as work."""
    runs_per_hour: float = 600.0
    tokens: int = 8000
    """Of a run, its prompt included."""
    said: float = 0.3
    """Share of them that the model said."""
    steps: int = 8
    reported: float = 0.05
    """Share of the runs whose outcome is told."""
    delay_minutes: float = 60.0
    """From the end of a run to its outcome."""
    disk_gb: float = 1.0
    """Written in a second, in 1e9 bytes."""
    cores: int = 1
    """On a CPU: that the learner computes with."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    key: str
    what: str
    value: float
    unit: str
    basis: Basis
    told: str
    """What it is from: the formula, the assumption, the measurement and its error."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    model: str
    parameters: int
    given: Given
    fits: bool
    """As set, or with the settings of `changed`."""
    changed: tuple[str, ...]
    """Settings without which it does not fit; every figure counts with them."""
    remedies: tuple[str, ...]
    """Where it does not fit as set: what helps."""
    memory: dict[str, float]
    """Bytes, by what they are for."""
    figures: tuple[Figure, ...]


def plan(model: str, shape: Shape, given: Given, config: Config) -> Plan:
    """What `shape` takes under these settings."""
    asked = training(learner(config), given.gpus)
    if given.gpus > 1 or not given.gpus:
        asked = msgspec.structs.replace(asked, trainer="verl" if given.gpus else "native")
    have = (given.gpu_gb if given.gpus else given.machine_gb) * GIGA or math.inf
    run, changed = settled(asked, shape, have)
    fits = needed(shape, run) <= have
    figures = [*_memory(shape, asked, run, changed, given, have, fits)]
    update = _update(shape, run, given, config)
    figures += update
    figures += _loop(shape, given, config, sum(one.value for one in update if one.unit == "s"))
    return Plan(
        model=model, parameters=shape.parameters, given=given, fits=fits, changed=changed,
        remedies=() if needed(shape, asked) <= have else tuple(remedies(shape, asked, have)),
        memory=memory(shape, run), figures=tuple(figures),
    )  # fmt: skip


def _memory(
    shape: Shape, asked: Training, run: Training, changed: tuple[str, ...], given: Given, have: float, fits: bool
) -> list[Figure]:
    where = "each GPU" if given.gpus else "the process"
    limit = f" of {have / GIGA:.0f}" if have < math.inf else ""
    verdict = f"{'fits' if fits else 'does NOT fit'}{limit}" if limit else "nobody said how much there is"
    if changed:
        verdict += f" with {' and '.join(changed)}; as set {needed(shape, asked) / GIGA:.1f}"
    basis = "formula, held against no GPU yet" if given.gpus else "formula, within 10 % of the peaks measured on a CPU"
    figures = [
        Figure(key="memory_gb", what=f"memory of {where} at the peak", value=needed(shape, run) / GIGA, unit="GB",
               basis="formula", told=f"{verdict}. {run.trainer} trainer, {run.tokens} tokens a micro-batch; {basis}"),
    ]  # fmt: skip
    if given.gpus:
        host = sum(host_memory(shape, run).values()) / GIGA
        figures.append(
            Figure(key="host_gb", what="the machine's memory while a version is written", value=host, unit="GB",
                   basis="formula", told="moments and masters on their way to disk; not measured")
        )  # fmt: skip
    return figures


def _update(shape: Shape, run: Training, given: Given, config: Config) -> list[Figure]:
    rows = config.train.runs
    steps = max(1, min(config.train.mini_batches, rows // LEAST))
    work = Work(rows=rows, length=given.tokens, trained=given.said, probe=PROBE_TOKENS)
    operations = flops(shape, run, work, steps)
    if given.gpus:
        peak = peak_flops(given.gpu)
        assert peak is not None
        rate, basis = given.gpus * peak * given.utilisation, "assumed"
        told = (
            f"{operations / 1e15:.2f} PFLOP at {100 * given.utilisation:.0f} % of {given.gpus} x {peak / 1e12:.0f} "
            "TFLOP/s (data sheet); the share is assumed, no GPU was measured"
        )
    else:
        rate, basis = given.cores * CPU_RATE, "measured"
        told = (
            f"{operations / 1e12:.1f} TFLOP at {given.cores} x {CPU_RATE / 1e9:.0f} GFLOP/s, measured on one core; "
            "more cores are assumed to add up"
        )
    weights, moments = version_bytes(shape), optimizer_bytes(shape)
    written = weights + moments / STATE_EVERY
    seconds = written / min(given.disk_gb * GIGA, DIGEST_RATE)
    return [
        Figure(
            key="update_seconds", what="computing an update", value=operations / rate, unit="s", basis=basis,
            told=f"{rows} runs (train.runs) of {given.tokens} tokens (assumed); {told}",
        ),
        Figure(
            key="write_seconds", what="writing its version", value=seconds, unit="s", basis="assumed",
            told=f"{given.disk_gb:g} GB/s to disk (assumed), sha256 at {DIGEST_RATE / GIGA:.1f} (a core)",
        ),
        Figure(
            key="update_gb", what="bytes an update writes", value=written / GIGA, unit="GB", basis="counted",
            told=f"weights {weights / GIGA:.1f} in bf16, and with every {STATE_EVERY}th version moments and masters, "
            f"{moments / GIGA:.1f}; within 1 % of files written here",
        ),
    ]  # fmt: skip


def _loop(shape: Shape, given: Given, config: Config, cycle: float) -> list[Figure]:
    """
    Args:
        cycle: seconds of an update with its version.
    """
    canary, seconds, pace = values.canary(config), values.gate_seconds(config), PACES[config.profile]
    limit = config.train.max_staleness
    reports = given.runs_per_hour * given.reported / 3600.0
    by_data = DAY * reports * USED / config.train.runs
    by_learner = DAY / cycle
    updates = min(by_data, by_learner)
    interval = DAY / updates
    trial = min(canary.deadline_seconds, max(canary.seconds, canary.runs / reports))
    turn = seconds + trial
    verdicts = min(updates, DAY / turn)
    # From being sampled to being trained: the outcome, the rest of the batch, and the update before this one's end.
    age = given.delay_minutes * 60.0 + interval / 2 + cycle
    # What serves was made before: it waited for its verdict, and serves until the next one has passed its trial.
    behind = (age + seconds + turn / 2) / interval
    stale = f"train.max_staleness = {limit} allows it"
    if behind > limit:
        stale = (
            f"train.max_staleness = {limit}: what is older is dropped or waits, so there will be fewer updates; "
            "outcomes that come sooner, or more in a batch (train.runs), help"
        )
    judged, a_run = _judge(given, config)
    scored = SCORED + pace.drift_runs
    replayed = pace.prompts * (given.tokens + config.sandbox.max_tokens)
    shadow = verdicts * 2 * (scored * given.tokens + replayed)
    episodes = config.train.groups * config.train.group_size if config.sandbox.environment else 0
    played = f"{episodes} rollouts an update" if episodes else "no sandbox, no rollouts"
    return [
        Figure(
            key="updates_day", what="updates a day", value=updates, unit="", basis="formula",
            told=f"bound by {'outcomes' if by_data <= by_learner else 'the learner'}: outcomes allow {by_data:,.0f} "
            f"({100 * given.reported:g} % of {given.runs_per_hour:g} runs an hour reported, assumed; "
            f"{100 * USED:.0f} % of these used: simulated here, 32 to 82), the learner {by_learner:,.0f}",
        ),
        Figure(
            key="promotions_day", what="versions a day that may come to serve", value=verdicts, unit="",
            basis="formula",
            told=f"one trial at a time: {_duration(trial)} for {canary.runs} outcomes ([trial]), "
            f"{seconds:g} s to a verdict; {100 * SHARE:.0f} % of runs are held out",
        ),
        Figure(
            key="staleness_minutes", what="age of a run when it is learned from", value=age / 60.0, unit="min",
            basis="assumed",
            told=f"outcome after {given.delay_minutes:g} min (assumed), half the wait for a batch, one update",
        ),
        Figure(
            key="staleness_versions", what="versions between its policy and the update", value=behind, unit="",
            basis="formula",
            told=f"that age, a verdict and half a trial, over {_duration(interval)} an update; {stale}",
        ),
        Figure(
            key="judge_tokens_day", what="tokens of an LLM judge a day", value=judged, unit="", basis="assumed",
            told=f"{a_run:,.0f} a run (steps as shown, rubric, labels: by characters), "
            f"{100 * config.judge.share:g} % of runs judged (judge.share); the judge "
            '"rules" takes none',
        ),
        Figure(
            key="shadow_tokens_day", what="tokens of the shadow engine a day",
            value=shadow + updates * episodes * given.tokens, unit="", basis="formula",
            told=f"{verdicts:,.0f} verdicts at most: {scored} runs scored and {pace.prompts} prompts replayed "
            f"under two versions each; {played}",
        ),
        Figure(
            key="shadow_gb_day", what="weights that the shadow engine loads a day",
            value=updates * version_bytes(shape) / GIGA, unit="GB", basis="formula", told="every update once",
        ),
        Figure(
            key="load_seconds", what="loading a version inside a pause", value=version_bytes(shape) / LOAD_RATE,
            unit="s", basis="measured",
            told=f"{LOAD_RATE / GIGA:.2f} GB/s: vLLM on a CPU, one file of 0.4 GB; a GPU was not measured",
        ),
    ]  # fmt: skip


def _judge(given: Given, config: Config) -> tuple[float, float]:
    """Tokens of an LLM judge a day, and those of one run."""
    shown = Shown()
    calls = min(shown.windows, math.ceil(given.steps / shown.window_steps))
    judged = min(given.steps, calls * shown.window_steps)
    read = min(float(given.tokens), judged * shown.step / STEP_CHARACTERS)
    a_run = read + calls * RUBRIC + judged * LABEL
    again = BLIND_SHARE * given.reported
    return 24.0 * given.runs_per_hour * config.judge.share * (1 + again) * a_run, a_run


def _duration(seconds: float) -> str:
    """Such as "40 s", "12 min", "3.5 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
