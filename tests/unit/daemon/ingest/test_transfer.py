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
from tests.support.traffic import exchange

pytestmark = pytest.mark.anyio
CALLS = 600


class FallsAfterTheFirst(StubBus):
    async def publish(self, items: Sequence[Outgoing]) -> None:
        await super().publish(items)
        self.down = True


async def test_an_import_waits_for_the_broker_and_says_where_it_stopped(tmp_path: Path) -> None:
    file, said, bus = tmp_path / "calls.jsonl", list[str](), FallsAfterTheFirst()
    file.write_bytes(b"\n".join(to_line(exchange("run", number)) for number in range(CALLS)))

    async def publish(wait: float) -> None:
        reader = Reader(Options(), Redactor(RedactionSettings()), said.append)
        await publish_file(bus, str(file), reader, said.append, wait=wait)

    with pytest.raises(CommandFailed) as stopped:
        await publish(1.0)
    assert 0 < len(bus.published) < CALLS
    assert f"before line {len(bus.published) + 1} is in" in str(stopped.value)
    assert any("the broker takes nothing" in line for line in said)
    async with anyio.create_task_group() as group:
        group.start_soon(publish, 60.0)
        while len(bus.published) < CALLS:
            await anyio.sleep(0.05)
            bus.down = False
    assert len({item.id for item in bus.published}) == CALLS
