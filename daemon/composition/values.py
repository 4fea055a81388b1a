"""What each part of the daemon takes of the settings: the file's values, and those of its profile's pace."""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.credit.attributor import AttributorSettings
from actors.curation.pool import CuratorSettings
from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import SwapperSettings
from actors.experience.probing_round import ProbeSettings
from actors.gate.drift import DriftSettings
from actors.gate.gatekeeper import GatekeeperSettings
from actors.gate.prompts import PromptSettings
from actors.gate.sandbox_trial import SandboxTrialSettings
from actors.monitoring.settings import Actions
from actors.rollout.settings import RolloutSettings
from actors.tasks.failures import FailureSettings
from actors.tasks.questioner.settings import Preferences, QuestionerSettings
from actors.tasks.searching import SearchSettings
from actors.trajectories.assembler import AssemblerSettings
from daemon.settings import toml
from daemon.settings.pace import PACES
from daemon.settings.tables import Config, Llm, Sandbox

TASKS_A_SEED = 10_000_000
"""Task numbers of one seed: people and agents try things in the lower half, the rollout plays the upper one."""


class Adapter(msgspec.Struct, frozen=True):
    """An adapter by its registered name, with its keyword arguments; no name: none."""

    name: str = ""
    options: dict[str, Any] = {}


def adapter(config: Config, kind: str) -> Adapter:
    """The one that the settings name, of `kind` judge, grader, embedder, extractor, rewriter or wording."""
    if kind == "embedder":
        found = config.embeddings
        options = {"base_url": found.url, "model": found.model, "key_file": found.key_file}
        return Adapter("openai", options) if found.url else Adapter("hashing")
    if kind == "judge":
        return _asking(config.judge.name, config.judge.options, config.llm, {"llm"})
    if kind == "grader":
        return _asking(config.sandbox.grader, config.sandbox.grader_options, config.llm, {"anchored", "open"})
    wanted = {
        "extractor": "llm" in config.lessons.draw,
        "rewriter": config.lessons.rewrite,
        "wording": bool(config.tasks.prefer.get("style")),
    }
    return chat(config) if wanted[kind] else Adapter()


def chat(config: Config) -> Adapter:
    """What asks the chat model of [llm]; none if there is none."""
    return _asking("llm" if config.llm.url else "", {}, config.llm, {"llm"})


def _asking(name: str, options: Mapping[str, Any], llm: Llm, who: set[str]) -> Adapter:
    """The adapter `name`. Those in `who` ask [llm] where their options name no endpoint: its key goes to it alone."""
    shared = {"url": llm.url, "model": llm.model, "key_file": llm.key_file, **llm.options}
    asks = name in who and "url" not in options
    return Adapter(name, {**(shared if asks else {}), **options})


def assembler(config: Config) -> AssemblerSettings:
    return AssemblerSettings(
        idle_seconds=60.0 * config.runs.idle_minutes, keys_share_runs=config.runs.across_keys,
        processed_logprobs=tuple(one.name for one in config.engines if one.logprobs == "processed"),
    )  # fmt: skip


def attributor(config: Config) -> AttributorSettings:
    return AttributorSettings(
        concurrency=config.limits.judge_calls, share=config.judge.share, tokens_per_day=config.judge.tokens_per_day
    )  # fmt: skip


def curator(config: Config) -> CuratorSettings:
    """Where there is no sandbox, no group will ever come, and none is waited for."""
    train, pace = config.train, PACES[config.profile]
    return CuratorSettings(
        groups_per_batch=train.groups if config.sandbox.environment else 0, group_size=train.group_size,
        production_per_batch=train.runs, production_share=train.production_share, replay_share=train.replay_share,
        max_staleness=train.max_staleness, group_seconds=pace.group_seconds, mix_share=pace.mix_share,
        provisional=train.provisional,
    )  # fmt: skip


def probe(config: Config) -> ProbeSettings:
    return ProbeSettings(**_played(config.sandbox))


def _played(sandbox: Sandbox) -> dict[str, Any]:
    return {"families": sandbox.families, "max_steps": sandbox.max_steps, "max_tokens": sandbox.max_tokens}


def rollout(config: Config) -> RolloutSettings:
    sandbox, lessons, turn = config.sandbox, config.lessons, config.limits.turn_seconds
    return RolloutSettings(
        groups=config.train.groups, group_size=config.train.group_size,
        stall_seconds=PACES[config.profile].stall_seconds,
        guided_share=lessons.guided_share if lessons.per_prompt else 0.0, lessons=lessons.per_prompt,
        first_seed=config.seed * TASKS_A_SEED + TASKS_A_SEED // 2, concurrency=config.limits.episodes,
        step_timeout=turn, group_seconds=15 * turn, **_played(sandbox),
    )  # fmt: skip


def failures(config: Config) -> FailureSettings:
    return FailureSettings(enabled="failures" in config.tasks.make, families=config.sandbox.families)


def search(config: Config) -> SearchSettings:
    sandbox = config.sandbox
    return SearchSettings(
        max_steps=sandbox.max_steps, max_tokens=sandbox.max_tokens, step_timeout=config.limits.turn_seconds
    )


def questioner(config: Config) -> QuestionerSettings:
    """Raises ConfigError: tasks.prefer has what no preference is."""
    return QuestionerSettings(
        families=config.sandbox.families,
        prefer=toml.convert(config.tasks.prefer, Preferences, "tasks.prefer"),
    )  # fmt: skip


def gatekeeper(config: Config) -> GatekeeperSettings:
    pace = PACES[config.profile]
    return GatekeeperSettings(
        gate_every=config.gate.every, tick_seconds=pace.gate_tick_seconds,
        gate_seconds=pace.gate_seconds if config.sandbox.environment else pace.replay_gate_seconds,
    )  # fmt: skip


def sandbox_trial(config: Config) -> SandboxTrialSettings:
    gate, pace = config.gate, PACES[config.profile]
    return SandboxTrialSettings(
        batch=pace.gate_batch, tasks=gate.tasks, max_tasks=pace.gate_verdicts * gate.tasks, margin=gate.margin,
        alpha=gate.error, beta=gate.error, step_timeout=config.limits.turn_seconds,
        forgetting_margin=gate.forgetting_margin, **_played(config.sandbox),
    )  # fmt: skip


def prompts(config: Config) -> PromptSettings:
    pace = PACES[config.profile]
    return PromptSettings(most=pace.prompts, max_tokens=config.sandbox.max_tokens, entropy_low=pace.entropy_low)


def drift(config: Config) -> DriftSettings:
    pace = PACES[config.profile]
    return DriftSettings(most=pace.drift_rows, kl_limit=pace.kl_limit, surprise_limit=pace.surprise_limit)


def canary(config: Config) -> CanarySettings:
    return CanarySettings(
        runs=config.trial.runs,
        deadline_seconds=60.0 * config.trial.minutes,
        seconds=PACES[config.profile].trial_seconds,
    )


def swapper(config: Config) -> SwapperSettings:
    return SwapperSettings(
        swap_timeout=config.limits.swap_seconds, reconcile_seconds=PACES[config.profile].reconcile_seconds,
        canary=canary(config),
    )  # fmt: skip


def sentinel(config: Config) -> Actions:
    watch = config.watch
    return Actions(success=watch.success, judge_alone=watch.judge_alone, judge_drift=watch.judge_drift)
