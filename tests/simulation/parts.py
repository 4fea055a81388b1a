"""The real actors at their defaults, and what makes them anew when they died."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from actors.credit.attributor import Attributor
from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import Swapper
from actors.experience.experiencer import Experiencer
from actors.gate.gatekeeper import Gatekeeper
from actors.gate.panel import Panel, Trial
from actors.gate.replay_trial import ReplayTrial
from actors.kinds.kinds import Kinds
from actors.monitoring.sentinel import Sentinel
from actors.system.actor import Actor
from actors.trajectories.assembler import Assembler
from actors.versions.version_timeline import VersionTimeline
from adapters.judges.rules import RulesJudge
from daemon.collectors.learning import LearningView
from tests.simulation.policies import SimulatedSwaps

if TYPE_CHECKING:
    from tests.simulation.world import World

SHADOW = "shadow"


class Unlucky:
    """`Trial` that has bad luck with its first decisions: they are rejections, whatever was measured."""

    def __init__(self, trial: Trial, times: int) -> None:
        self._trial, self._left = trial, times

    async def compare(self, *args: Any, **options: Any) -> Any:
        comparison = await self._trial.compare(*args, **options)
        # A hold decides nothing; where there is no evidence, there is no luck.
        if self._left and comparison.decision in ("promote", "reject"):
            self._left -= 1
            return msgspec.structs.replace(comparison, decision="reject", reason=f"bad luck: {comparison.reason}")
        return comparison

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)


class Parts:
    """Makes the actors, and makes them anew when their daemon died."""

    def __init__(self, world: "World", state: Path, swaps: SimulatedSwaps, keys: Any) -> None:
        self.world, self.state, self.swaps, self.keys = world, state, swaps, keys
        self.forget()

    def forget(self) -> None:
        """The whole daemon died: what actors share in memory is gone too."""
        self.times, self.kinds = VersionTimeline(self.world.clock), Kinds()

    @property
    def names(self) -> list[str]:
        """In the order in which records are handed on."""
        names = ["curator", "gatekeeper", "swapper", "sentinel", "experiencer"]
        return ["assembler", "attributor", *names] if self.world.cell.exchanges else names

    @property
    def swapper(self) -> Swapper:
        return cast(Swapper, self.world.loop.actors["swapper"])

    @property
    def view(self) -> LearningView:
        actors: dict[str, Any] = self.world.loop.actors
        return LearningView(
            curator=actors["curator"], gatekeeper=actors["gatekeeper"], fleet=lambda: self.swapper.fleet,
            canary=CanarySettings(), halted=lambda: "", clock=self.world.clock,
        )  # fmt: skip

    def make(self, name: str) -> Actor:
        world, store, clock, versions = self.world, self.world.store, self.world.clock, self.state / "versions"
        match name:
            case "assembler":
                return Assembler(store=store, clock=clock)
            case "attributor":
                return Attributor(judge=RulesJudge(), store=store, clock=clock)
            case "curator":
                rules = CuratorSettings(groups_per_batch=0)
                return Curator(
                    rules, store=store, batches=self.state / "batches", clock=clock,
                    curriculum=rules.curriculum(self.kinds),
                )  # fmt: skip
            case "gatekeeper":
                # No checks of prompts and of safety: they ask for words, and these policies have none.
                replay = ReplayTrial(engine=world.shadow, store=store)
                trial = Unlucky(Panel(trial=replay, checks=[]), world.cell.luck)
                return Gatekeeper(
                    store=store, shadow=world.shadow, shadow_name=SHADOW, runner=self.swaps,
                    trial=trial, versions=versions, key=world.key, clock=clock, times=self.times,
                )  # fmt: skip
            case "swapper":
                return Swapper(
                    canary=CanarySettings(), store=store, engines=world.serving, runner=self.swaps, versions=versions,
                    key=world.key, keys=self.keys, clock=clock, times=self.times, kinds=self.kinds,
                )  # fmt: skip
            case "sentinel":
                engines = {**world.serving, SHADOW: world.shadow}
                return Sentinel(store=store, engines=engines, clock=clock, kinds=self.kinds)
            case _:
                return Experiencer(store=store, prober=None, clock=clock)
