"""Nothing that decides about weights is written without an entry, and no entry can be changed unseen."""

from collections.abc import Callable

import pytest

from actors.messages import Candidate, Directive, Message, Serving, Verdict, encode
from actors.store import Store
from actors.store.archive import ask
from actors.store.audit import START, Entry, Findings, Head, entries, verify
from tests.support.credited import attributed
from tests.support.databases import change

pytestmark = pytest.mark.anyio

RECORDS: tuple[Message, ...] = (
    Candidate(id="c1", version=1, parent=0, path="/v1", files=(), manifest="ab" * 32, created=1.0),
    Verdict(
        id="j1", version=1, path="/v1", manifest="ab" * 32, incumbent=0, decision="promote", reason="better",
        measurements={"success": 0.75}, created=2.0, signature="cd" * 64,
    ),
    Serving(id="s1", engine="serving", version=1, previous=0, path="/v1", result="swapped", since=3.0),
    Directive(id="d1", kind="freeze", reason="incident", origin="control", created=4.0),
)  # fmt: skip


class Trail:
    """A store with four entries, to be looked at and tampered with from beside it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def verify(self, anchor: Head | None = None) -> Findings:
        return ask(self.url, lambda connection: verify(connection, anchor))

    def entries(self) -> list[Entry]:
        return ask(self.url, lambda connection: list(entries(connection)))

    def run(self, *statements: str, **values: object) -> None:
        assert set(change(self.url, *statements, **values)) == {1}


@pytest.fixture
async def trail(store_url: str, store: Store) -> Trail:
    for record in RECORDS:
        await store.save([record])
    return Trail(store_url)


async def test_each_record_has_one_entry_in_the_order_it_was_written(trail: Trail):
    found = trail.entries()
    assert [(entry.sequence, entry.kind, entry.subject) for entry in found] == [
        (1, "candidate", "c1"), (2, "verdict", "j1"), (3, "serving", "s1"), (4, "directive", "d1"),
    ]  # fmt: skip
    assert [entry.previous for entry in found] == [START, *(entry.hash for entry in found[:-1])]
    assert {entry.at for entry in found} == {1000.0}
    assert trail.verify() == Findings(head=Head(4, found[-1].hash))


async def test_a_record_that_comes_again_has_no_second_entry(trail: Trail, store: Store):
    await store.save([*RECORDS, RECORDS[0]])
    assert await store.commit("swapper", ["input"], [RECORDS[2], RECORDS[2]], []) is not None
    await store.save([attributed("t")])
    assert len(trail.entries()) == 4


async def test_an_actors_commit_writes_entry_and_record_together_or_neither(trail: Trail, store: Store):
    again = Directive(id="d2", kind="thaw", reason="", origin="control", created=5.0)
    assert await store.commit("sentinel", ["one"], [again], []) is not None
    other = Directive(id="d3", kind="thaw", reason="", origin="control", created=6.0)
    assert await store.commit("sentinel", ["one"], [other], []) is None
    assert [entry.subject for entry in trail.entries()][4:] == ["d2"]
    assert trail.verify().problem == ""


COLUMNS = {
    "sequence": "UPDATE audit SET sequence = 9 WHERE sequence = 2",
    "at": "UPDATE audit SET at = at + 1 WHERE sequence = 2",
    "kind": "UPDATE audit SET kind = 'serving' WHERE sequence = 2",
    "subject": "UPDATE audit SET subject = 'j2' WHERE sequence = 2",
    "digest": f"UPDATE audit SET digest = '{'0' * 64}' WHERE sequence = 2",
    "previous": f"UPDATE audit SET previous = '{'0' * 64}' WHERE sequence = 2",
    "hash": f"UPDATE audit SET hash = '{'0' * 64}' WHERE sequence = 2",
}


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        *((changed, 2) for changed in COLUMNS.values()),
        *((f"DELETE FROM audit WHERE sequence = {number}", number) for number in (1, 2, 3)),
        ("INSERT INTO audit SELECT 5, at, 'serving', subject, digest, hash, hash FROM audit WHERE sequence = 4", 5),
    ],
)
async def test_a_change_to_any_column_and_an_entry_that_goes_or_is_put_in_are_found(
    trail: Trail, statement: str, broken: int
):
    assert set(COLUMNS) == set(Entry.__struct_fields__)
    trail.run(statement)
    assert trail.verify().broken == broken


async def test_an_end_cut_off_with_its_records_is_found_only_with_an_anchor(trail: Trail):
    anchor = trail.verify().head
    trail.run("DELETE FROM audit WHERE sequence = 4", "DELETE FROM directives WHERE id = 'd1'")
    assert trail.verify().problem == ""
    assert "cut off" in trail.verify(anchor).problem


def rewrite(trail: Trail) -> None:
    """What somebody does who knows how the chain is made: another first entry, and all that follows from it."""
    previous = START
    for entry in trail.entries():
        made = Entry(
            sequence=entry.sequence, at=entry.at + 1, kind=entry.kind, subject=entry.subject, digest=entry.digest,
            previous=previous, hash="",
        )  # fmt: skip
        previous = made.computed()
        trail.run(
            "UPDATE audit SET at = :at, previous = :previous, hash = :hash WHERE sequence = :sequence",
            at=made.at, previous=made.previous, hash=previous, sequence=made.sequence,
        )  # fmt: skip


async def test_a_chain_that_was_written_anew_is_found_only_with_an_anchor(trail: Trail):
    anchor = trail.verify().head
    rewrite(trail)
    assert trail.verify().problem == ""
    assert "rewritten" in trail.verify(anchor).problem


TAMPERED: dict[str, tuple[Callable[[Trail], None], str]] = {
    "changed": (
        lambda trail: trail.run("UPDATE verdicts SET body = :body WHERE id = 'j1'", body=encode(RECORDS[1]) + b"\0"),
        "its record was changed: verdict j1",
    ),
    "gone": (lambda trail: trail.run("DELETE FROM candidates WHERE id = 'c1'"), "its record is gone: candidate c1"),
    "no entry": (
        lambda trail: trail.run("DELETE FROM audit WHERE sequence = 4"),
        "directive d1 has no entry: put in beside the daemon",
    ),
    "put in": (
        lambda trail: trail.run("INSERT INTO directives SELECT 'd9', kind, created, body FROM directives"),
        "directive d9 has no entry: put in beside the daemon",
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
async def test_a_record_that_does_not_match_its_entry_is_found(trail: Trail, how: str):
    tamper, says = TAMPERED[how]
    tamper(trail)
    assert trail.verify().problem == says


async def test_pages_of_a_long_chain_follow_each_other(store_url: str, store: Store):
    made = [Directive(id=f"d{n}", kind="thaw", reason="", origin="test", created=float(n)) for n in range(2500)]
    await store.save(made)
    trail = Trail(store_url)
    assert trail.verify(store.audit_head) == Findings(head=store.audit_head)
    trail.run("UPDATE audit SET at = 0 WHERE sequence = 2001")
    assert trail.verify().broken == 2001
