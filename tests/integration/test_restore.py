"""The restore drill: a store that is filled from a real broker, backed up under writes, lost, and put back."""

import shutil
from pathlib import Path

import anyio
import pytest

from actors.messages import Directive, decode
from actors.store import Store
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.integrity import check
from actors.system.bus import Bus, Subscription
from actors.system.outgoing import outgoing
from actors.system.runtime import run
from actors.system.streams import TRAFFIC_EXCHANGE
from daemon.errors import CommandFailed, StartFailed
from daemon.processes.state_lock import state_lock
from daemon.settings.reading import load
from daemon.settings.tables import Config
from daemon.upkeep.backup import backup
from daemon.upkeep.restore import restore, rewind
from tests.support.databases import opened_store
from tests.support.nats import opened_bus, running_broker
from tests.support.patience import within
from tests.support.ports import free_port
from tests.support.traffic import exchange

pytestmark = pytest.mark.promise
CALLS = 300
HANDLER = "assembler"


def quiet(_: str) -> None:
    pass


def settings(state: Path) -> Config:
    return load(None, [f"state_dir={state}", f"control.listen=127.0.0.1:{free_port()}"])


async def subscribed(bus: Bus) -> Subscription:
    return await bus.subscribe(HANDLER, (TRAFFIC_EXCHANGE,))


async def handle(store: Store, subscription: Subscription, wanted: int, *, last: bool = False) -> tuple[int, int]:
    """Take in `wanted` records, as a runner does, and if they are the `last`, what comes shortly after them, and leave;
    (handled, met again)."""
    handled = again = 0
    while (left := wanted - handled - again) > 0 or last:
        deliveries = await subscription.fetch(min(20, left) if left > 0 else 20, within() if left > 0 else 0.5)
        if not deliveries:
            break
        done = await store.processed(HANDLER, [delivery.id for delivery in deliveries])
        fresh = [delivery for delivery in deliveries if delivery.id not in done]
        if fresh:
            records = [decode(delivery.data) for delivery in fresh]
            notice = Directive(id=f"seen-{fresh[0].id}", kind="notice", reason="", origin="test", created=1.0)
            written = await store.commit(HANDLER, [delivery.id for delivery in fresh], [*records, notice], [])
            assert written is not None
        handled, again = handled + len(fresh), again + len(deliveries) - len(fresh)
        await subscription.ack(deliveries)
    if last:
        await subscription.aclose()
    return handled, again


def test_what_a_restore_lost_comes_again_from_the_streams_and_nothing_counts_twice(tmp_path: Path) -> None:
    state, out = tmp_path / "state", tmp_path / "monday"
    config = settings(state)

    async def drill(host) -> None:
        async with running_broker(tmp_path) as broker, opened_bus(host, broker, tmp_path) as bus:
            await bus.publish([outgoing(TRAFFIC_EXCHANGE, exchange(f"r{n}", 0)) for n in range(CALLS)])
            async with opened_store(config.store_url) as store:
                subscription = await subscribed(bus)
                assert await handle(store, subscription, 100) == (100, 0)
                async with anyio.create_task_group() as group:
                    group.start_soon(handle, store, subscription, 120)
                    made = await anyio.to_thread.run_sync(lambda: backup(config, out, settings=None, with_keys=False))
                await handle(store, subscription, 80, last=True)  # the broker has an ack for all of them
                assert len(await store.open_exchanges()) == CALLS

            shutil.rmtree(state)  # the disk is gone
            assert restore(config, out, say=quiet) == made
            async with opened_store(config.store_url) as store:
                before = len(await store.open_exchanges())
                assert 100 <= before < CALLS
                assert str(store.audit_head) == made.head
                # Without more, nothing would come again: the broker believes that all is done.
                assert await handle(store, await subscribed(bus), 0, last=True) == (0, 0)
                assert await rewind(store, bus) == 1
                assert await handle(store, await subscribed(bus), CALLS, last=True) == (CALLS - before, before)
                found = sorted(call.id for call in await store.open_exchanges())
                assert found == sorted(f"x-default-r{n}-0" for n in range(CALLS))
                assert await rewind(store, bus) == 0
                assert await handle(store, await subscribed(bus), 0, last=True) == (0, 0)
        assert ask(config.store_url, verify).problem == ""
        assert ask(config.store_url, lambda connection: check(connection, None, quiet)).findings == ()

    run(drill)


@pytest.fixture
def made(tmp_path: Path) -> Config:
    """A state directory with a store, keys, two versions, registered adapters and a spool."""
    config = settings(tmp_path / "state")

    async def fill() -> None:
        async with opened_store(config.store_url) as store:
            await store.save([exchange("a", n) for n in range(40)])
            await store.save([Directive(id="d", kind="freeze", reason="x", origin="control", created=1.0)])

    anyio.run(fill)
    for name in ("keys/gate/private.pem", "versions/v000000/model.safetensors", "versions/v000000/manifest.json",
                 "versions/v000007/model.safetensors", "versions/v000007/manifest.json", "live/adapters.json",
                 "spool/00000001.seg"):  # fmt: skip
        (config.state / name).parent.mkdir(parents=True, exist_ok=True)
        (config.state / name).write_text(name)
    return config


def test_a_backup_holds_keys_only_if_asked_for(made: Config, tmp_path: Path) -> None:
    plain = backup(made, tmp_path / "plain", settings=None, with_keys=False)
    names = {entry.name for entry in plain.files}
    assert names == {
        "evolved.db", "state/versions/v000000/manifest.json", "state/versions/v000007/manifest.json",
        "state/live/adapters.json",
    }  # fmt: skip
    everything = backup(made, tmp_path / "all", settings=None, with_keys=True)
    more = {entry.name for entry in everything.files} - names
    assert more == {"state/keys/gate/private.pem"}
    assert (tmp_path / "all").stat().st_mode & 0o077 == 0
    with pytest.raises(CommandFailed, match="exists"):
        backup(made, tmp_path / "all", settings=None, with_keys=True)


def test_what_is_in_the_way_is_named_and_the_spool_is_not(made: Config, tmp_path: Path) -> None:
    out, old = tmp_path / "all", tmp_path / "old"
    backup(made, out, settings=None, with_keys=True)
    with pytest.raises(
        CommandFailed, match=r"is there already; nothing was changed.*mkdir OLD && mv .*evolved\.db"
    ) as told:
        restore(made, out, say=quiet)
    old.mkdir()
    for path in str(told.value).partition("&& mv ")[2].split()[:-1]:
        shutil.move(path, old)
    restore(made, out, say=quiet)
    assert (made.state / "keys/gate/private.pem").read_text() == "keys/gate/private.pem"
    assert (made.state / "spool/00000001.seg").is_file()
    assert ask(made.store_url, verify).problem == ""
    assert not list(made.state.glob(".restore*"))


@pytest.mark.parametrize("name", ["evolved.db", "state/live/adapters.json", "backup.json"])
def test_a_backup_that_is_damaged_is_refused_and_nothing_is_touched(made: Config, tmp_path: Path, name: str) -> None:
    out = tmp_path / "plain"
    backup(made, out, settings=None, with_keys=False)
    content = bytearray((out / name).read_bytes())
    content[len(content) // 2] ^= 1
    (out / name).write_bytes(content)
    before = sorted(made.state.rglob("*"))
    with pytest.raises(CommandFailed, match="nothing was changed"):
        restore(made, out, say=quiet)
    assert sorted(path for path in made.state.rglob("*") if path.name != "daemon.lock") == before


def test_a_restore_is_refused_while_a_daemon_holds_the_directory(made: Config, tmp_path: Path) -> None:
    backup(made, tmp_path / "b", settings=None, with_keys=False)
    taken = pytest.raises(StartFailed, match="a daemon runs here; stop it first")
    with state_lock(made.state), state_lock(made.state), taken:  # two daemons may share it
        restore(made, tmp_path / "b", say=quiet)
    under_way = pytest.raises(StartFailed, match="a restore is under way")
    with state_lock(made.state, alone=True), under_way, state_lock(made.state):
        pass
