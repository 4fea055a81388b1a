"""What each part of the daemon takes of the settings: the file's values, and those of its profile's pace."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from actors.curation.pool import CuratorSettings
from actors.deployment.canary import CanarySettings
from actors.gate.sandbox_trial import SandboxTrialSettings
from actors.rollout.settings import RolloutSettings
from actors.tasks.questioner.settings import Preferences, QuestionerSettings
from daemon.composition import registry
from daemon.settings import toml
from daemon.settings.pace import PACES
from daemon.settings.tables import Config, Llm

T = TypeVar("T", bound=msgspec.Struct)
Adapter = tuple[str, dict[str, Any]]
"""Its registered name, no name for none, and its keyword arguments."""
TASKS_A_SEED = 10_000_000
"""Task numbers of one seed: people and agents try things in the lower half, the rollout plays the upper one."""


def adapter(config: Config, kind: str) -> Adapter:
    """The one that the settings name, of `kind` judge, grader, embedder, extractor, rewriter or wording."""
    if kind == "embedder":
        found = config.embeddings
        options = {"base_url": found.url, "model": found.model, "key_file": found.key_file}
        return ("openai", options) if found.url else ("hashing", {})
    if kind == "judge":
        return _asking(config.judge.name, config.judge.options, config.llm, {"llm"})
    if kind == "grader":
        return _asking(config.sandbox.grader, config.sandbox.grader_options, config.llm, {"anchored", "open"})
    wanted = {
        "extractor": "llm" in config.lessons.draw,
        "rewriter": config.lessons.rewrite,
        "wording": bool(config.tasks.prefer.get("style")),
    }
    return chat(config) if wanted[kind] else ("", {})


def built(config: Config, kind: str) -> Any:
    """That one, made; None if the settings name none."""
    name, options = adapter(config, kind)
    return registry.build(kind, name, options) if name else None


def chat(config: Config) -> Adapter:
    """What asks the chat model of [llm]; none if there is none."""
    return _asking("llm" if config.llm.url else "", {}, config.llm, {"llm"})


def _asking(name: str, options: Mapping[str, Any], llm: Llm, who: set[str]) -> Adapter:
    """The adapter `name`. Those in `who` ask [llm] where their options name no endpoint: its key goes to it alone."""
    shared = {"url": llm.url, "model": llm.model, "key_file": llm.key_file, **llm.options}
    asks = name in who and "url" not in options
    return name, {**(shared if asks else {}), **options}


def _settings(kind: type[T], *tables: msgspec.Struct, **own: Any) -> T:
    """Settings of `kind`: what `tables` have under its fields' own names (the last one's word counts), and `own`."""
    there = {name: value for table in tables for name, value in msgspec.structs.asdict(table).items()}
    return kind(**{name: there[name] for name in kind.__struct_fields__ if name in there} | own)


def curator(config: Config) -> CuratorSettings:
    """Where there is no sandbox, no group will ever come, and none is waited for."""
    train = config.train
    return _settings(
        CuratorSettings, PACES[config.profile], train, production_per_batch=train.runs,
        groups_per_batch=train.groups if config.sandbox.environment else 0,
    )  # fmt: skip


def rollout(config: Config) -> RolloutSettings:
    lessons, turn = config.lessons, config.limits.turn_seconds
    return _settings(
        RolloutSettings, PACES[config.profile], config.train, config.sandbox, lessons=lessons.per_prompt,
        guided_share=lessons.guided_share if lessons.per_prompt else 0.0, concurrency=config.limits.episodes,
        first_seed=config.seed * TASKS_A_SEED + TASKS_A_SEED // 2, step_timeout=turn, group_seconds=15 * turn,
    )  # fmt: skip


def questioner(config: Config) -> QuestionerSettings:
    """Raises ConfigError: tasks.prefer has what no preference is."""
    prefer = toml.convert(config.tasks.prefer, Preferences, "tasks.prefer")
    return QuestionerSettings(families=config.sandbox.families, prefer=prefer)


def gate_seconds(config: Config) -> float:
    """What a verdict costs decides how soon the next one comes."""
    pace = PACES[config.profile]
    return pace.gate_seconds if config.sandbox.environment else pace.replay_gate_seconds


def sandbox_trial(config: Config) -> SandboxTrialSettings:
    gate, pace = config.gate, PACES[config.profile]
    return _settings(
        SandboxTrialSettings, config.sandbox, gate, batch=pace.gate_batch, max_tasks=pace.gate_verdicts * gate.tasks,
        alpha=gate.error, beta=gate.error, step_timeout=config.limits.turn_seconds,
    )  # fmt: skip


def canary(config: Config) -> CanarySettings:
    trial, pace = config.trial, PACES[config.profile]
    return CanarySettings(runs=trial.runs, deadline_seconds=60.0 * trial.minutes, seconds=pace.trial_seconds)
