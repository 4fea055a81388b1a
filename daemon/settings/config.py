"""The configuration: one section per part, every default in the part's own settings, checked before anything starts."""

from pathlib import Path
from typing import Any

import msgspec

from actors.credit.attributor import AttributorSettings
from actors.curation.pool import CuratorSettings
from actors.deployment.swapper import SwapperSettings
from actors.experience.experiencer import ExperiencerSettings
from actors.experience.probing_round import ProbeSettings
from actors.experience.retrieval.settings import NavigatorSettings
from actors.gate.drift import DriftSettings
from actors.gate.gatekeeper import GatekeeperSettings
from actors.gate.panel import PanelSettings
from actors.gate.prompts import PromptSettings
from actors.gate.replay_trial import ReplayTrialSettings
from actors.gate.safety import SafetySettings
from actors.gate.sandbox_trial import SandboxTrialSettings
from actors.monitoring.sentinel import SentinelSettings
from actors.rollout.settings import RolloutSettings
from actors.store.settings import StoreSettings
from actors.system.broker import BrokerSettings
from actors.system.nats_settings import BusSettings
from actors.tasks.questioner.settings import QuestionerSettings
from actors.trajectories.assembler import AssemblerSettings
from adapters.redaction import InvalidRedaction, RedactionSettings, Redactor
from daemon.composition.cluster import ClusterSettings
from daemon.composition.tasks import TaskSettings
from daemon.errors import ConfigError
from daemon.ingest.otlp_receiver import IntakeSettings
from daemon.ingest.shipper import ShipperSettings
from daemon.live.settings import LiveSettings
from daemon.settings import tables
from daemon.settings.control import ControlSettings
from daemon.tap.settings import TapSettings
from daemon.upkeep.provenance import ProvenanceSettings
from daemon.upkeep.retention import RetentionSettings
from daemon.upkeep.weights import WeightsSettings
from learner.settings import LearnerSettings

SERVING, SHADOW = "serving", "shadow"
"""Names of the engines if there is one that serves, and of the one that no agent sees."""


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
    workers: int = 0
    """Processes that its episodes are played in, so that one that hangs or crashes costs its episode alone (Linux). 0:
    in the daemon's process, which is what the travel desk wants: it cannot hang, and a step in another process takes
    many times as long."""
    tool_search: int = 0
    """Show each episode only so many tools, those found for its goal, and the tool search_tools, which brings as many
    more; 0: all tools, always. For environments with more tools than a prompt has room for."""


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate."""

    keeper: GatekeeperSettings = GatekeeperSettings()
    """When it looks."""
    sandbox: SandboxTrialSettings = SandboxTrialSettings()
    """The exam with a sandbox."""
    replay: ReplayTrialSettings = ReplayTrialSettings()
    """The exam without one."""
    panel: PanelSettings = PanelSettings()
    safety: SafetySettings = SafetySettings()
    prompts: PromptSettings = PromptSettings()
    drift: DriftSettings = DriftSettings()


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything. `state` and `spool` are where this machine keeps it."""

    told: tables.Config | None = None
    """As the file has it."""
    state_dir: str = "/var/lib/evolved"
    """Directory for spool, store, versions, keys and batches."""
    seed: int = 0
    """Tasks, sampling and jitter of the daemon follow from it."""
    broker: BrokerSettings = BrokerSettings()
    bus: BusSettings = BusSettings()
    store: StoreSettings = StoreSettings()
    control: ControlSettings = ControlSettings()
    cluster: ClusterSettings = ClusterSettings()
    engines: tuple[tables.Engine, ...] = (tables.Engine(SERVING, "http://127.0.0.1:8000"),)
    """Those that answer agents, in the order in which they are swapped: the first that answers is the canary."""
    shadow: tables.Shadow = tables.Shadow("http://127.0.0.1:8001")
    """Takes every candidate: rollouts and the gate run on it, agents never."""
    sandbox: SandboxSettings = SandboxSettings()
    judge: AdapterSettings = AdapterSettings(name="rules")
    embedder: AdapterSettings = AdapterSettings(name="hashing")
    extractor: AdapterSettings = AdapterSettings()
    rewriter: AdapterSettings = AdapterSettings(name="")
    """Says a lesson in words that fit the case before it is given; none by default."""
    live: LiveSettings = LiveSettings()
    adapters: dict[str, dict[str, Any]] = {}
    """Live APIs by name: [apis.NAME] with kind ("openapi", "mcp", "callables", or "installed" for one by entry
    point), its options, and [apis.NAME.policy]; see docs/tools.md."""
    tap: TapSettings = TapSettings()
    intake: IntakeSettings = IntakeSettings()
    redaction: RedactionSettings = RedactionSettings()
    shipper: ShipperSettings = ShipperSettings()
    assembler: AssemblerSettings = AssemblerSettings()
    attributor: AttributorSettings = AttributorSettings()
    curator: CuratorSettings = CuratorSettings()
    experiencer: ExperiencerSettings = ExperiencerSettings()
    probe: ProbeSettings = ProbeSettings()
    navigator: NavigatorSettings = NavigatorSettings()
    questioner: QuestionerSettings = QuestionerSettings()
    llm: AdapterSettings = AdapterSettings()
    """The chat model; none by default."""
    wording: AdapterSettings = AdapterSettings()
    """Words the tasks that the questioner makes; none by default: templates do."""
    rollout: RolloutSettings = RolloutSettings()
    tasks: TaskSettings = TaskSettings()
    grader: AdapterSettings = AdapterSettings()
    """Says how well an attempt went where no execution can; none by default."""
    gate: GateSettings = GateSettings()
    swapper: SwapperSettings = SwapperSettings()
    sentinel: SentinelSettings = SentinelSettings()
    learner: LearnerSettings = LearnerSettings()
    provenance: ProvenanceSettings = ProvenanceSettings()
    weights: WeightsSettings = WeightsSettings()
    retention: RetentionSettings = RetentionSettings()

    @property
    def state(self) -> Path:
        # Absolute: paths below it go to engines and to a learner, whose working directory is another.
        return Path(self.state_dir).absolute()

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


def serving_engines(config: Config) -> dict[str, str]:
    """The engines that answer agents: URL by name, in the order in which they are swapped."""
    return {one.name: one.url for one in config.engines}


def tap_settings(config: Config) -> TapSettings:
    """What the tap is told, with spool, keys and routes where this machine keeps them."""
    door = msgspec.structs.replace(config.tap.door, keys_file=str(config.keys or ""))
    return msgspec.structs.replace(
        config.tap, spool_dir=str(config.spool), door=door, routes_file=str(config.state / config.tap.routes_file)
    )


def curator_settings(config: Config) -> CuratorSettings:
    """What the curator is told: where there is no sandbox, no group will ever come, and none is waited for."""
    told = config.curator
    return told if config.sandbox.environment else msgspec.structs.replace(told, groups_per_batch=0)


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
