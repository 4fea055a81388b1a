"""The gate's trial from its settings: held-out tasks or replayed outcomes, and the checks beside them."""

from typing import Any

from actors.gate.drift import DriftCheck
from actors.gate.panel import Panel
from actors.gate.prompts import PromptCheck
from actors.gate.replay_trial import ReplayTrial
from actors.gate.safety import InvalidProbes, SafetyCheck
from actors.gate.sandbox_trial import SandboxTrial, Trial
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.ports.store import GateStore, Retriever
from daemon.composition import registry as adapters
from daemon.composition.harness import manner
from daemon.errors import ConfigError
from daemon.settings.config import Config


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
