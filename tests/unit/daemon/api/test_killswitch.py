"""The file FREEZE stops everything for as long as it is there, and undoes nothing but its own."""

from pathlib import Path

import anyio
import pytest

from actors.messages import Directive
from actors.store import Store
from daemon.api.killswitch import ORIGIN, KillSwitch

pytestmark = pytest.mark.anyio


class Bench:
    """A kill switch, and a life of so many looks; what is to happen before each but the first is in `steps`."""

    def __init__(self, store: Store, state: Path) -> None:
        self.store, self.kill, self.now = store, KillSwitch(state), 1.0
        self.draining, self.steps = anyio.Event(), list[str]()

    def ready(self) -> None: ...

    def beat(self) -> None: ...

    async def pause(self, seconds: float) -> bool:
        match self.steps.pop(0) if self.steps else "end":
            case "end":
                self.draining.set()
            case "touch":
                self.kill.path.write_text("incident 4711")
            case "remove":
                self.kill.path.unlink()
            case "freeze" | "thaw" as kind:
                await self.order(kind, "by hand", "control")
        return not self.draining.is_set()

    async def order(self, kind, reason: str, origin: str = ORIGIN) -> None:
        self.now += 1
        directive = Directive(id=f"{self.now}", kind=kind, reason=reason, origin=origin, created=self.now)
        await self.store.save([directive])

    async def said(self, steps: str) -> list[tuple[str, str]]:
        self.draining, self.steps = anyio.Event(), steps.split()
        await self.kill.watch(self, self.store, self.order)  # type: ignore[arg-type]
        return [(item.kind, item.origin) for item in reversed(await self.store.newest(Directive))]


@pytest.fixture
def bench(store: Store, tmp_path: Path) -> Bench:
    return Bench(store, tmp_path)


async def test_its_text_is_the_reason_and_what_cannot_be_read_stops_too(bench: Bench) -> None:
    path = bench.kill.path
    assert bench.kill.reason() == ""
    for text, reason in (("  incident\n4711 \n", "incident 4711"), ("", f"{path} is there")):
        path.write_text(text)
        assert bench.kill.reason() == reason
    path.unlink()
    path.mkdir()
    assert "cannot be read" in bench.kill.reason()


async def test_a_file_that_was_removed_while_no_daemon_ran_is_noticed(bench: Bench) -> None:
    await bench.said("touch nothing")
    bench.kill.path.unlink()
    assert await bench.said("") == [("freeze", ORIGIN), ("thaw", ORIGIN)]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        pytest.param("touch nothing nothing remove nothing", [("freeze", ORIGIN), ("thaw", ORIGIN)], id="once"),
        pytest.param("freeze touch nothing remove nothing", [("freeze", "control")], id="an operator's freeze stays"),
        pytest.param(
            "touch thaw nothing", [("freeze", ORIGIN), ("thaw", "control"), ("freeze", ORIGIN)], id="no thaw lasts"
        ),
    ],
)
async def test_it_freezes_while_it_is_there_and_undoes_its_own_alone(
    bench: Bench, steps: str, said: list[tuple[str, str]]
) -> None:
    assert await bench.said(steps) == said
