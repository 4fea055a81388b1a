"""The engines that serve, as one sees them: at one look, and for people."""

import anyio
import msgspec

from actors.ports.engines import Engine
from actors.ports.errors import EngineError


class Look(msgspec.Struct, frozen=True):
    """What one engine was at when it was asked."""

    version: int | None = None
    """None: it did not answer."""
    paused: bool = False
    healthy: bool = False
    problem: str = ""
    """Why it did not answer."""

    @property
    def serves(self) -> bool:
        """Whether users can be sent there."""
        return self.version is not None and self.healthy and not self.paused


async def look_at(engine: Engine, timeout: float) -> Look:
    """Ask `engine`, which has `timeout` seconds."""
    try:
        with anyio.fail_after(timeout):
            return Look(await engine.version(), await engine.is_paused(), await engine.health())
    except (EngineError, TimeoutError) as error:
        return Look(problem=f"{type(error).__name__}: {error}")


class EngineView(msgspec.Struct, frozen=True, kw_only=True):
    """One engine in `evolved status`."""

    version: int | None
    """What it serves; None if it does not answer."""
    since: float
    """Unix seconds since when, as far as the books say."""
    reachable: bool
    paused: bool
    canary_share: float
    """Of new trajectories, if a version is on trial at it: 1.0 for the only engine."""
    note: str
    """What it waits for, if it does not serve what it should."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All engines, and what they should serve."""

    stable: int | None = None
    """What all engines serve but the one with the trial, and what is gone back to if that ends badly."""
    stable_since: float = 0.0
    """Unix seconds when the first engine took it; 0: not known."""
    canary: int | None = None
    """Version on trial, with one engine too."""
    canary_engine: str = ""
    """Where it is on trial; empty: no engine has taken it yet."""
    canary_since: float = 0.0
    canary_runs: int = 0
    canary_judged: int = 0
    """Runs of the canary with an outcome."""
    canary_against: int = 0
    """Runs with an outcome that they are compared with."""
    canary_due: int = 0
    """Runs of the canary with an outcome at which it is next compared."""
    waiting: int | None = None
    """Promoted version whose trial comes next."""
    good: tuple[int, ...] = ()
    """Versions that one can go back to, the latest last."""
    banned: tuple[int, ...] = ()
    """Versions that were rolled back or refused."""
    engines: dict[str, EngineView] = {}
