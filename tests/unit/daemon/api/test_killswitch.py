"""The file FREEZE stops everything for as long as it is there, and undoes nothing but its own."""

from pathlib import Path

import anyio
import pytest

from actors.messages import Directive
from actors.store import Store
from daemon.api.killswitch import ORIGIN, KillSwitch

pytestmark = pytest.mark.anyio


class Looks:
    """A life of so many looks; what is to happen before each is in `steps`."""

    def __init__(self, *steps) -> None:
        self.draining, self._steps = anyio.Event(), list(steps)

    def ready(self) -> None: ...

    def beat(self) -> None: ...

    async def pause(self, seconds: float) -> bool:
        if not self._steps:
            self.draining.set()
            return False
        await self._steps.pop(0)()
        return True


class Bench:
    def __init__(self, store: Store, state: Path) -> None:
        self.store, self.kill = store, KillSwitch(state)
        self.now = 1.0

    async def order(self, kind, reason: str, origin: str = ORIGIN) -> None:
        self.now += 1
        directive = Directive(id=f"{self.now}", kind=kind, reason=reason, origin=origin, created=self.now)
        await self.store.save([directive])

    async def touch(self, text: str = "incident 4711") -> None:
        self.kill.path.write_text(text)

    async def remove(self) -> None:
        self.kill.path.unlink()

    async def freeze(self) -> None:
        await self.order("freeze", "by hand", "control")

    async def thaw(self) -> None:
        await self.order("thaw", "", "control")

    async def nothing(self) -> None: ...

    async def said(self, *steps) -> list[tuple[str, str]]:
        await self.kill.watch(Looks(*steps), self.store, self.order)  # type: ignore[arg-type]
        return [(item.kind, item.origin) for item in reversed(await self.store.directives())]


@pytest.fixture
def bench(store: Store, tmp_path: Path) -> Bench:
    return Bench(store, tmp_path)


async def test_its_text_is_the_reason_and_what_cannot_be_read_stops_too(bench: Bench) -> None:
    assert bench.kill.reason() == ""
    await bench.touch("  incident\n4711 \n")
    assert bench.kill.reason() == "incident 4711"
    await bench.touch("")
    assert "FREEZE is there" in bench.kill.reason()
    await bench.remove()
    bench.kill.path.mkdir()
    assert "cannot be read" in bench.kill.reason()


async def test_a_file_that_was_removed_while_no_daemon_ran_is_noticed(bench: Bench) -> None:
    await bench.touch()
    await bench.said()
    await bench.remove()
    assert await bench.said() == [("freeze", ORIGIN), ("thaw", ORIGIN)]


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
    assert await bench.said(*(getattr(bench, step) for step in steps.split())) == said
