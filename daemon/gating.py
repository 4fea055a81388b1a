"""The gate's trial from its settings: held-out tasks or replayed outcomes, and the checks beside them."""

from typing import Any

from actors.gate.drift import DriftCheck
from actors.gate.panel import Panel
from actors.gate.prompts import PromptCheck
from actors.gate.safety import InvalidProbes, SafetyCheck
from actors.ports import GateStore, Retriever
from actors.replay_trial import ReplayTrial
from actors.trials import SandboxTrial, Trial
from adapters.engines import Engine
from adapters.environments import Environment
from daemon import registry as adapters
from daemon.config import Config
from daemon.errors import ConfigError
from daemon.playing import manner


def gate_trial(
    config: Config,
    *,
    store: GateStore,
    shadow: Engine,
    environment: Environment | None,
    retriever: Retriever | None = None,
) -> Trial:
    """What the gatekeeper compares by.

    Raises:
        ConfigError: there is no such judge, or the probes cannot be used.
    """
    gate = config.gate
    trial: Trial
    if environment is None:
        trial = ReplayTrial(gate.replay, engine=shadow, store=store)
    else:
        trial = SandboxTrial(
            gate.sandbox, environment=environment, engine=shadow, store=store, seed=config.seed, retriever=retriever,
            manner=manner(config.rollout),
        )  # fmt: skip
    judge: Any = None
    if gate.judge.name:
        judge = adapters.build("preference", gate.judge.name, gate.judge.options)
    try:
        safety = SafetyCheck(gate.safety, engine=shadow)
    except InvalidProbes as error:
        raise ConfigError(str(error)) from error
    prompts = PromptCheck(gate.prompts, engine=shadow, store=store, judge=judge)
    return Panel(gate.panel, trial=trial, checks=[safety, prompts, DriftCheck(gate.drift, engine=shadow, store=store)])
