"""The store as the system's ledger: it must agree with `MemoryLedger`, and outlive its process."""

from pathlib import Path

import pytest

from actors.messages import Directive, Message
from actors.store import Store, StoreUnavailable
from actors.system.errors import DependencyUnavailable
from actors.system.outgoing import Outgoing

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


def directive(key: str) -> Directive:
    return Directive(id=key, kind="freeze", reason="test", origin="test", created=1.0)


def out(key: str) -> Outgoing:
    return Outgoing("policy.directive", key, key.encode())


async def test_commit_marks_saves_and_queues_at_once(store: Store) -> None:
    assert await store.commit("gate", ["a", "b"], [directive("d")], [out("x"), out("y")])
    assert await store.processed("gate", ["a", "b", "c"]) == {"a", "b"}
    assert await store.processed("other", ["a"]) == set()
    assert [item.id for item in await store.unpublished("gate", 10)] == ["x", "y"]
    assert [found.id for found in await store.newest(Directive)] == ["d"]
    await store.save([Directive(id="d", kind="thaw", reason="", origin="", created=9.0)])
    assert [found.kind for found in await store.newest(Directive)] == ["freeze"], "what comes twice changes nothing"


async def test_commit_with_a_processed_input_writes_nothing(store: Store) -> None:
    await store.commit("gate", ["a"], [], [])
    assert await store.commit("gate", ["b", "a"], [directive("d")], [out("x")]) is None
    assert await store.processed("gate", ["b"]) == set()
    assert await store.newest(Directive) == []
    assert await store.unpublished("gate", 10) == []


async def test_commit_that_cannot_save_a_record_leaves_no_mark(store: Store) -> None:
    class Stray(Message, frozen=True, kw_only=True, tag="stray"):
        pass

    with pytest.raises(TypeError, match="Stray"):
        await store.commit("gate", ["a"], [directive("d"), Stray(id="s")], [])
    assert await store.processed("gate", ["a"]) == set()
    assert await store.newest(Directive) == []


async def test_published_output_is_not_queued_again(store: Store) -> None:
    await store.commit("gate", ["a"], [], [out("x"), out("y")])
    await store.published("gate", ["x"])
    await store.commit("gate", [], [], [out("x"), out("z")])
    assert [item.id for item in await store.unpublished("gate", 10)] == ["y", "z"]


async def test_parked_record_is_done_listed_and_can_be_revived(store: Store) -> None:
    await store.park("gate", "a", "policy.directive", b"bad", "cannot read")
    await store.park("gate", "a", "policy.directive", b"bad", "cannot read")
    assert await store.processed("gate", ["a"]) == {"a"}
    (letter,) = await store.dead_letters()
    assert (letter["actor"], letter["error"], letter["size"]) == ("gate", "cannot read", 3)

    again = await store.revive(letter["id"])
    assert again is not None
    assert (again.subject, again.data) == ("policy.directive", b"bad")
    assert again.id != "a"
    assert await store.processed("gate", ["a"]) == set()
    await store.delete_dead_letter(letter["id"])
    assert await store.dead_letters() == []
    assert await store.revive(letter["id"]) is None


async def test_prune_forgets_old_marks_but_not_what_is_still_to_publish(store_url: str) -> None:
    now = [0.0]
    store = Store(store_url, clock=lambda: now[0])
    await store.open()
    await store.commit("gate", ["old"], [], [out("sent"), out("unsent")])
    await store.published("gate", ["sent"])
    now[0] = 100.0
    await store.commit("gate", ["new"], [], [])
    assert await store.prune(50.0) == 2
    assert await store.processed("gate", ["old", "new"]) == {"new"}
    assert [item.id for item in await store.unpublished("gate", 10)] == ["unsent"]
    await store.aclose()


async def test_a_database_that_cannot_be_opened_is_an_outage(tmp_path: Path) -> None:
    (tmp_path / "evolved.db").mkdir()
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 0.0)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert isinstance(caught.value, DependencyUnavailable)
    await store.aclose()
