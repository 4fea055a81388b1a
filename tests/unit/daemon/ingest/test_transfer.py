"""Imports while the broker is away."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from actors.system.outgoing import Outgoing
from adapters.intake.jsonl import to_line
from adapters.redaction import RedactionSettings, Redactor
from daemon.errors import CommandFailed
from daemon.ingest.transfer import Options, Reader, publish_file
from tests.support.stub_bus import StubBus
from tests.support.traffic import exchange, feedback
from tests.support.travelling import call, trajectory

pytestmark = pytest.mark.anyio
LINES = 600


class FallsAfterTheFirst(StubBus):
    async def publish(self, items: Sequence[Outgoing]) -> None:
        await super().publish(items)
        self.down = True


def line(number: int) -> bytes:
    """A line of each kind in turn."""
    run = trajectory([(call("book"), "")], id=f"{number:032x}")
    kinds = (exchange("run", number), feedback("run", number), run)
    return to_line(kinds[number % 3])


async def test_an_import_waits_for_the_broker_says_where_it_stopped_and_adds_nothing_when_it_is_repeated(
    tmp_path: Path,
) -> None:
    file, said, bus = tmp_path / "all.jsonl", list[str](), FallsAfterTheFirst()
    file.write_bytes(b"\n".join(map(line, range(LINES))))

    async def publish(wait: float) -> None:
        reader = Reader(Options(), Redactor(RedactionSettings()), said.append)
        await publish_file(bus, str(file), reader, said.append, wait=wait)

    with pytest.raises(CommandFailed) as stopped:
        await publish(1.0)
    assert 0 < len(bus.published) < LINES
    assert f"before line {len(bus.published) + 1} is in" in str(stopped.value)
    assert any("the broker takes nothing" in line for line in said)
    for _ in range(2):
        over = anyio.Event()

        async def mended(over: anyio.Event = over) -> None:
            while not over.is_set():
                bus.down = False
                await anyio.sleep(0.02)

        async with anyio.create_task_group() as group:
            group.start_soon(mended)
            await publish(60.0)
            over.set()
    assert len({item.id for item in bus.published}) == len(bus.published) == LINES
