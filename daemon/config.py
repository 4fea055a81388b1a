"""The configuration: one section per part, every default in the part's own settings, checked before anything starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from actors.assembler import AssemblerSettings
from actors.attributor import AttributorSettings
from actors.curator import CuratorSettings
from actors.experiencer import ExperiencerSettings
from actors.gatekeeper import GatekeeperSettings
from actors.navigator import NavigatorSettings
from actors.probing import ProbeSettings
from actors.replay_trial import ReplayTrialSettings
from actors.rollout import RolloutSettings
from actors.sentinel import SentinelSettings
from actors.swapper import SwapperSettings
from actors.system.broker import BrokerSettings
from actors.system.line import RunnerSettings
from actors.trials import SandboxTrialSettings
from adapters.redaction import InvalidRedaction, RedactionSettings, Redactor
from daemon import toml
from daemon.control import ControlSettings
from daemon.errors import ConfigError
from daemon.intake import IntakeSettings
from daemon.provenance import ProvenanceSettings
from daemon.shipper import ShipperSettings
from daemon.tap.settings import TapSettings
from daemon.weights import WeightsSettings
from learner.settings import LearnerSettings


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The database."""

    url: str = ""
    """SQLAlchemy URL; empty for SQLite in `state_dir`."""


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NATS that everything streams over."""

    url: str = ""
    """nats://host:port of your own; empty for the one that `evolved broker` runs on this machine."""
    user: str = ""
    """User at your own NATS."""
    password_file: str = ""
    """File that holds its password."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine that speaks vLLM's HTTP surface."""

    url: str = ""
    """Base URL, without /v1. Its development endpoints must be reachable from the daemon and from nobody else."""


class EnginesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engines."""

    serving: EngineSettings = EngineSettings(url="http://127.0.0.1:8000")
    """Answers your agents."""
    shadow: EngineSettings = EngineSettings(url="http://127.0.0.1:8001")
    """Takes every candidate: rollouts and the gate run on it, agents never."""


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An adapter by its registered name."""

    name: str = ""
    """As registered under the entry point group `evolved.adapters`."""
    options: dict[str, Any] = {}
    """Keyword arguments for it."""


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where shadow rollouts play."""

    environment: str = ""
    """Name of an environment adapter, such as "travel"; empty: learn from traffic and feedback alone."""
    options: dict[str, Any] = {}
    """Keyword arguments for it."""


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate."""

    keeper: GatekeeperSettings = GatekeeperSettings()
    """When it looks."""
    sandbox: SandboxTrialSettings = SandboxTrialSettings()
    """The exam with a sandbox."""
    replay: ReplayTrialSettings = ReplayTrialSettings()
    """The exam without one."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything. `state` and `spool` are where this machine keeps it."""

    state_dir: str = "/var/lib/evolved"
    """Directory for spool, store, versions, keys and batches."""
    runtime: Literal["trio-guest", "asyncio"] = "trio-guest"
    """How the daemon runs its actors."""
    seed: int = 0
    """Tasks, sampling and jitter of the daemon follow from it."""
    broker: BrokerSettings = BrokerSettings()
    bus: BusSettings = BusSettings()
    store: StoreSettings = StoreSettings()
    control: ControlSettings = ControlSettings()
    engines: EnginesSettings = EnginesSettings()
    sandbox: SandboxSettings = SandboxSettings()
    judge: AdapterSettings = AdapterSettings(name="rules")
    embedder: AdapterSettings = AdapterSettings(name="hashing")
    tap: TapSettings = TapSettings()
    intake: IntakeSettings = IntakeSettings()
    redaction: RedactionSettings = RedactionSettings()
    shipper: ShipperSettings = ShipperSettings()
    actors: RunnerSettings = RunnerSettings()
    assembler: AssemblerSettings = AssemblerSettings()
    attributor: AttributorSettings = AttributorSettings()
    curator: CuratorSettings = CuratorSettings()
    experiencer: ExperiencerSettings = ExperiencerSettings()
    probe: ProbeSettings = ProbeSettings()
    navigator: NavigatorSettings = NavigatorSettings()
    rollout: RolloutSettings = RolloutSettings()
    gate: GateSettings = GateSettings()
    swapper: SwapperSettings = SwapperSettings()
    sentinel: SentinelSettings = SentinelSettings()
    learner: LearnerSettings = LearnerSettings()
    provenance: ProvenanceSettings = ProvenanceSettings()
    weights: WeightsSettings = WeightsSettings()

    @property
    def state(self) -> Path:
        return Path(self.state_dir)

    @property
    def spool(self) -> Path:
        """Directory that the tap writes and the shipper reads."""
        return self.state / self.tap.spool_dir  # an absolute path stands for itself

    @property
    def keys(self) -> Path | None:
        """The key file that tap and control API check; none if nobody has keys."""
        name = self.tap.door.keys_file
        return self.state / name if name else None

    @property
    def store_url(self) -> str:
        return self.store.url or f"sqlite:///{self.state.absolute() / 'evolved.db'}"


def load(path: Path | None, assignments: Sequence[str] = ()) -> Config:
    """The configuration in the file at `path`, with `section.key=value` assignments laid over it.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    table = toml.read(path) if path is not None else {}
    for text in assignments:
        table = toml.merge(table, toml.assignment(text))
    return toml.convert(table, Config, str(path) if path is not None else "settings")


def tap_settings(config: Config) -> TapSettings:
    """What the tap is told, with spool and keys where this machine keeps them."""
    door = msgspec.structs.replace(config.tap.door, keys_file=str(config.keys or ""))
    return msgspec.structs.replace(config.tap, spool_dir=str(config.spool), door=door)


def tap_redaction(config: Config) -> dict[str, Any]:
    """What the tap's scribe is told of redaction.

    Raises:
        ConfigError: a setting that cannot work; better said here than by a scribe that dies over it.
    """
    try:
        Redactor(config.redaction)
    except InvalidRedaction as error:
        raise ConfigError(str(error)) from error
    return msgspec.to_builtins(config.redaction)
