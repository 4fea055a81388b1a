"""Snapshots: memory goes back with the weights, and what was forgotten or barred stays away."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from actors.experience.navigator import Navigator
from actors.experience.retrieval.errors import SnapshotMissing, SnapshotRefused
from actors.experience.retrieval.settings import NavigatorSettings
from actors.experience.retrieval.snapshots import Snapshots
from actors.messages import Candidate, Experience, Message, Serving
from actors.store import Store
from actors.system.actor import Received
from adapters.embedders.hashing import HashingEmbedder

pytestmark = pytest.mark.anyio
GOAL = "Book a flight, cancel the order, pay the bill."


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    yield store
    await store.aclose()


async def navigator(store: Store, directory: Path, **settings: object) -> Navigator:
    actor = Navigator(
        NavigatorSettings(**settings), store=store, embedder=HashingEmbedder(), rng=random.Random(0),  # type: ignore[arg-type]
        directory=directory / "lessons",
    )  # fmt: skip
    await actor.start()
    return actor


def lesson(id: str, **fields: object) -> Experience:
    return Experience(**{"id": id, "when_to_use": id, "content": f"{id}:it", "state": "active", **fields})  # type: ignore[arg-type]


def candidate(version: int) -> Candidate:
    return Candidate(
        id=f"c{version}", version=version, parent=version - 1, path="", files=(), manifest="", created=float(version)
    )


def serving(version: int, result: str, previous: int = -1) -> Serving:
    return Serving(
        id=f"s{version}{result}", engine="a", version=version, previous=previous, path="", result=result, since=0.0  # type: ignore[arg-type]
    )  # fmt: skip


async def tell(actor: Navigator, store: Store, *messages: Message) -> None:
    """As the runner does: what is on the stream is in the store."""
    await store.save(messages)
    await actor.handle([Received(message.id, "", message) for message in messages])


async def given(actor: Navigator) -> set[str]:
    return {one.content for one in await actor.lessons(GOAL)}


async def test_going_back_to_a_version_brings_back_its_lessons_and_going_on_takes_them_away(
    store: Store, tmp_path: Path
):
    actor = await navigator(store, tmp_path)
    await tell(actor, store, lesson("book"), candidate(1))
    await tell(actor, store, lesson("book", content="book:that", revision=1), lesson("cancel"), candidate(2))
    assert await given(actor) == {"book:that", "cancel:it"}
    assert await actor.at(1) == 1
    assert await given(actor) == {"book:it"}
    await tell(actor, store, lesson("pay"))
    assert await given(actor) == {"book:it"}
    again = await navigator(store, tmp_path)
    assert await given(again) == {"book:it"}
    await again.at(None)
    assert await given(again) == {"book:that", "cancel:it", "pay:it"}


async def test_a_rollback_takes_the_lessons_along_if_it_is_told_to_and_the_next_version_ends_it(
    store: Store, tmp_path: Path
):
    actor = await navigator(store, tmp_path, follow_weights=True)
    await tell(actor, store, lesson("book"), candidate(1), serving(1, "swapped"))
    await tell(actor, store, lesson("book", state="retired", revision=1), lesson("cancel"), serving(2, "swapped", 1))
    assert await given(actor) == {"cancel:it"}
    await tell(actor, store, serving(2, "rolled_back", 1))
    assert await given(actor) == {"book:it"}
    assert actor.figures["pinned"] == 1
    await tell(actor, store, candidate(3))
    assert await given(actor) == {"cancel:it"}
    untold = await navigator(store, tmp_path)
    await untold.handle([Received("x", "", serving(2, "rolled_back", 1))])
    assert await given(untold) == {"cancel:it"}


async def test_what_is_in_quarantine_or_forgotten_does_not_come_back(store: Store, tmp_path: Path):
    actor = await navigator(store, tmp_path)
    await tell(actor, store, lesson("book"), lesson("cancel"), lesson("pay"), candidate(1))
    await tell(actor, store, lesson("book", state="quarantined", revision=1))
    await tell(actor, store, lesson("cancel", when_to_use="", content="", state="retired", revision=1))
    assert await actor.at(1) == 1
    assert await given(actor) == {"pay:it"}
    await tell(actor, store, lesson("pay", state="quarantined", revision=1))
    assert await given(actor) == set()


async def test_versions_between_which_nothing_was_learned_share_a_file(store: Store, tmp_path: Path):
    actor = await navigator(store, tmp_path)
    await tell(actor, store, lesson("book"))
    await tell(actor, store, candidate(1), candidate(2), candidate(3))
    names = sorted(path.suffix for path in (tmp_path / "lessons").iterdir())
    assert names == [".json", ".json", ".json", ".safetensors"]


async def test_old_snapshots_go_but_not_that_of_the_version_which_serves(store: Store, tmp_path: Path):
    actor = await navigator(store, tmp_path, snapshots=3)
    await tell(actor, store, candidate(1), serving(1, "swapped"))
    (tmp_path / "lessons" / ".0123456789abcdef.pool-x.safetensors.part").write_bytes(b"of a kill")
    for version in range(2, 9):
        await tell(actor, store, lesson(f"book{version}"), candidate(version))
    assert await Snapshots(tmp_path / "lessons", 3).versions() == [1, 6, 7, 8]
    assert len(list((tmp_path / "lessons").glob("*.safetensors*"))) == 4
    with pytest.raises(SnapshotMissing, match="version 2; there are: 1, 6, 7, 8"):
        await actor.at(2)


@pytest.mark.parametrize("harm", ["cut", "gone", "other", "manifest"])
async def test_a_damaged_snapshot_is_refused_and_the_lessons_stay_as_they_are(store: Store, tmp_path: Path, harm: str):
    actor = await navigator(store, tmp_path)
    await tell(actor, store, lesson("book"), candidate(1))
    await tell(actor, store, lesson("cancel"))
    [file] = (tmp_path / "lessons").glob("*.safetensors")
    manifest = tmp_path / "lessons" / "v000001.json"
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:-4])
    elif harm == "gone":
        file.unlink()
    elif harm == "other":
        manifest.write_bytes(msgspec.json.encode({**msgspec.json.decode(manifest.read_bytes()), "pool": "../../etc"}))
    else:
        manifest.write_text("{")
    with pytest.raises(SnapshotRefused):
        await actor.at(1)
    assert await given(actor) == {"book:it", "cancel:it"}


async def test_a_disk_that_cannot_be_written_costs_the_snapshot_alone_and_is_counted(store: Store, tmp_path: Path):
    (tmp_path / "lessons").write_text("a file where the directory should be")
    actor = await navigator(store, tmp_path)
    await tell(actor, store, lesson("book"), candidate(1))
    assert actor.figures["snapshot_failures"] == 1
    assert await given(actor) == {"book:it"}
