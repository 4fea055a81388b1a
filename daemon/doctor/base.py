"""What a check is, what it gets and what it says, and how all of them are run."""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import anyio.to_thread
import httpx
import msgspec

from daemon.settings.tables import Config

T = TypeVar("T")
CHECK_SECONDS = 5.0
"""Each check's deadline."""
CALL_SECONDS = 3.0
"""An HTTP answer's."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong."""

    severity: Literal["fault", "warning"]
    """A fault keeps evolved from doing its work; a warning may."""
    what: str
    """What was seen, with the file, address or unit."""
    remedy: str
    """What to do: the setting, the command."""


def fault(what: str, remedy: str) -> Finding:
    """A `Finding` that keeps evolved from its work."""
    return Finding("fault", what, remedy)


def warning(what: str, remedy: str) -> Finding:
    """A `Finding` that may keep evolved from its work."""
    return Finding("warning", what, remedy)


class NotLooked(Exception):
    """Raised by a check that cannot look, and why; another check says what is wrong."""


class Scene:
    """One installation, as the checks see it. Read-only."""

    def __init__(self, config: Config, *, root: Path = Path("/"), now: float = 0.0, unread: bool = False) -> None:
        """
        Args:
            root: of an image that is not this machine, as `evolved install --root` takes it.
            now: unix seconds; 0 for the present.
            unread: there were settings that could not be read; `config` lacks them.
        """
        self.config, self.root, self.unread = config, root, unread
        self.now = now or time.time()

    def http(self) -> httpx.AsyncClient:
        """A client for what is in reach: no proxy, short deadlines."""
        return httpx.AsyncClient(timeout=CALL_SECONDS, trust_env=False)


class Check(msgspec.Struct, frozen=True):
    """One thing that is looked at."""

    name: str
    looks_at: str
    """For people: what is seen to."""
    look: Callable[[Scene], Awaitable[Sequence[Finding]]]
    """Empty if nothing is wrong.

    Raises:
        NotLooked: it cannot be told.
    """


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A check that was done."""

    check: str
    looks_at: str
    state: Literal["well", "warning", "fault", "not looked"]
    why_not: str = ""
    """Why it was not looked at."""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0


async def examine(
    scene: Scene,
    checks: Sequence[Check],
    *,
    seconds: float = CHECK_SECONDS,
    done: Callable[[Examined], None] = lambda one: None,
) -> list[Examined]:
    """Do all `checks` at the same time; results in their order.

    Args:
        seconds: for each; one that takes longer is a warning.
        done: told of each as soon as it is done.
    """
    found: dict[str, Examined] = {}

    async def one(check: Check) -> None:
        found[check.name] = await _one(scene, check, seconds)
        done(found[check.name])

    async with anyio.create_task_group() as group:
        for check in checks:
            group.start_soon(one, check)
    return [found[check.name] for check in checks]


async def _one(scene: Scene, check: Check, seconds: float) -> Examined:
    began = anyio.current_time()
    findings: Sequence[Finding] = ()
    why_not = ""
    try:
        with anyio.fail_after(seconds):
            findings = await check.look(scene)
    except TimeoutError:
        findings = [warning(f"no answer within {seconds:g} s", "look at what it asks: a disk or a host that hangs")]
    except NotLooked as reason:
        why_not = str(reason)
    except Exception as error:
        # A doctor that dies of one check says nothing about the rest.
        findings = [warning(f"the check failed: {type(error).__name__}: {error}", "report it, with this line")]
    worst = {one.severity for one in findings}
    state = "fault" if "fault" in worst else "warning" if worst else "not looked" if why_not else "well"
    return Examined(
        check=check.name,
        looks_at=check.looks_at,
        state=state,
        why_not=why_not,
        findings=tuple(findings),
        seconds=round(anyio.current_time() - began, 3),
    )


async def aside(work: Callable[..., T], *arguments: object) -> T:
    """`work(*arguments)` in a thread, left to itself if it takes too long: a network disk may hang for ever."""
    return await anyio.to_thread.run_sync(lambda: work(*arguments), abandon_on_cancel=True)
