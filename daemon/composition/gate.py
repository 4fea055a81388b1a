"""What the gate compares by: held-out tasks or replayed outcomes, and the checks beside them."""

from actors.gate.distance import DistanceCheck
from actors.gate.panel import Check, Panel, Trial
from actors.gate.prompts import PromptCheck
from actors.gate.replay_trial import ReplayTrial
from actors.gate.safety import InvalidProbes, SafetyCheck
from actors.gate.sandbox_trial import SandboxTrial
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.store import Store
from daemon.composition import values
from daemon.composition.harness import harness
from daemon.errors import ConfigError
from daemon.settings.pace import PACES
from daemon.settings.tables import Config


def gate_trial(config: Config, *, store: Store, shadow: Engine, environment: Environment | None) -> Trial:
    """What the gatekeeper compares by."""
    gate, pace = config.gate, PACES[config.profile]
    trial: Trial
    if environment is None:
        trial = ReplayTrial(
            engine=shadow, store=store, least=gate.outcomes, margin=pace.replay_margin or gate.margin,
            small_step=config.train.max_step_kl, recent=pace.drift_runs, limit=pace.kl_limit,
        )  # fmt: skip
    else:
        trial = SandboxTrial(
            values.sandbox_trial(config), environment=environment, engine=shadow, store=store, seed=config.seed,
            harness=harness(config.sandbox, config.limits.turn_seconds),
        )  # fmt: skip
    try:
        safety = SafetyCheck(
            engine=shadow, file=gate.probes, attempts=pace.probe_attempts, max_tokens=pace.probe_tokens
        )
    except InvalidProbes as error:
        raise ConfigError(str(error)) from error
    prompts = PromptCheck(
        engine=shadow, store=store, most=pace.prompts, max_tokens=config.sandbox.max_tokens,
        entropy_low=pace.entropy_low,
    )  # fmt: skip
    checks: list[Check] = [safety, prompts]
    if environment is not None:  # the other trial measures it itself
        checks.append(DistanceCheck(engine=shadow, store=store, most=pace.drift_runs, limit=pace.kl_limit))
    return Panel(trial=trial, checks=checks)
