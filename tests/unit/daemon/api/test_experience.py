"""The pool by the control API: found, judged, added, revised, carried; refusals say what would do."""

import httpx
import pytest

from actors.messages import Directive
from tests.support.credited import attributed
from tests.support.experience import Desk, lesson

pytestmark = pytest.mark.anyio
BASE = "/api/experience"


async def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"]


async def test_the_list_narrows_by_tenant_state_kind_and_words(desk: Desk, http: httpx.AsyncClient) -> None:
    await desk.store.save(
        [
            lesson("a", updated=1.0), lesson("b", tenant="zeta", updated=2.0),
            lesson("c", state="retired", updated=3.0), lesson("d", kind="skill", content="Cancel The Booking"),
        ]
    )  # fmt: skip

    async def ids(query: str) -> list[str]:
        return [item["lesson"]["id"] for item in (await http.get(f"{BASE}?{query}")).json()]

    assert await ids("") == ["c", "b", "a", "d"]
    assert await ids("tenant=zeta") == ["b"]
    assert await ids("state=retired") == ["c"]
    assert await ids("kind=skill") == ["d"]
    assert await ids("q=the+booking") == ["d"]
    assert await ids("limit=2") == ["c", "b"]
    found = await http.post(f"{BASE}/search", json={"text": "booking", "tenant": "acme", "kinds": ["skill"]})
    assert [item["lesson"]["id"] for item in found.json()] == ["d"]
    assert "there are candidate, active" in await refused(await http.get(f"{BASE}?state=bad"), 422)
    assert "limit" in await refused(await http.get(f"{BASE}?limit=-1"), 422)


async def test_one_comes_with_its_revisions_and_sources(desk: Desk, http: httpx.AsyncClient) -> None:
    await desk.store.save([attributed("t", goal="fly"), lesson("a", sources=("t", "gone"))])
    await desk.store.save([lesson("a", sources=("t", "gone"), revision=1, state="retired", reason="no use")])
    told = (await http.get(f"{BASE}/a")).json()
    assert [(item["revision"], item["state"]) for item in told["revisions"]] == [(1, "retired"), (0, "active")]
    assert told["lesson"] == told["revisions"][0]
    assert [(item["id"], item["known"], item["goal"]) for item in told["sources"]] == [
        ("t", True, "fly"), ("gone", False, ""),
    ]  # fmt: skip
    assert "no lesson nobody" in await refused(await http.get(f"{BASE}/nobody"), 404)


@pytest.mark.parametrize(
    ("body", "said"), [({"text": " "}, "text"), ({"k": 0}, "k is 0"), ({"kinds": ["song"]}, "kinds"), ({"x": 1}, "x")]
)
async def test_a_search_that_makes_no_sense_is_refused(http: httpx.AsyncClient, body: dict, said: str) -> None:
    """What one finds: `tests/integration/test_experience.py`, and above."""
    assert said in await refused(await http.post(f"{BASE}/search", json={"text": "pay", **body}), 422)


async def test_an_operators_lesson_is_a_candidate_told_to_all_and_on_record(
    desk: Desk, http: httpx.AsyncClient
) -> None:
    body = {"when_to_use": "refund", "content": "Look it up. Ask jane.doe@example.org.", "tenant": "acme"}
    first = (await http.post(BASE, json={**body, "reason": "runbook 12"})).json()
    assert first["added"]
    made = first["lesson"]
    assert (made["state"], made["origin"], made["reason"], made["revision"]) == (
        "candidate", "operator", "runbook 12", 0,
    )  # fmt: skip
    assert "jane.doe" not in made["content"]
    assert ([found.id for found in desk.sent], desk.store.edits) == ([made["id"]], 1)
    (notice,) = await desk.store.newest(Directive)
    assert (notice.kind, notice.reason) == ("notice", "experience add: runbook 12")
    again = (await http.post(BASE, json=body)).json()
    assert (again["added"], again["lesson"]) == (False, made)
    assert len(await desk.store.newest(Directive)) == 1


async def test_a_lesson_without_words_or_with_too_many_is_refused(desk: Desk, http: httpx.AsyncClient) -> None:
    good = {"when_to_use": "w", "content": "c"}
    for change, said in (
        ({"content": " "}, "content is empty"),
        ({"when_to_use": "x" * 2001}, "when_to_use has 2,001"),
        ({"kind": "song"}, "kind"),
        ({"detail": {"x": "y" * 64_000}}, "detail has more"),
        ({"detail": {"x": 10**23}}, "detail has an integer beyond 64 bits"),
        ({"state": "active"}, "state"),
    ):
        assert said in await refused(await http.post(BASE, json={**good, **change}), 422)
    assert await desk.store.experiences() == []


@pytest.mark.parametrize(
    ("state", "change", "after"),
    [
        ("candidate", "activate", "active"), ("retired", "activate", "active"), ("active", "retire", "retired"),
        ("quarantined", "retire", "retired"), ("quarantined", "release", "candidate"),
        ("active", "activate", "possible: retire"), ("quarantined", "activate", "possible: retire, release"),
        ("retired", "retire", "possible: activate"),
    ],
)  # fmt: skip
async def test_an_operator_moves_a_lesson_to_a_state_that_makes_sense_and_with_a_reason(
    desk: Desk, http: httpx.AsyncClient, state: str, change: str, after: str
) -> None:
    await desk.store.save([lesson("a", state=state, guided=(9, 3))])
    assert "give a reason" in await refused(await http.post(f"{BASE}/a/state", json={"change": change}), 422)
    answer = await http.post(f"{BASE}/a/state", json={"change": change, "reason": "by hand"})
    if after.startswith("possible"):
        assert await refused(answer, 409) == f"the lesson is {state}; {after}"
        assert [found.revision for found in await desk.store.revisions_of("a")] == [0]
        return
    told = answer.json()
    assert (told["state"], told["reason"], told["revision"], told["guided"]) == (after, "by hand", 1, [9, 3])
    assert ([(found.id, found.revision) for found in desk.sent], desk.store.edits) == ([("a", 1)], 1)
    (notice,) = await desk.store.newest(Directive)
    assert notice.details == {"experience": "a", "state": after, "tenant": "acme"}


async def test_what_is_exported_comes_in_elsewhere_as_candidates(desk: Desk, http: httpx.AsyncClient) -> None:
    await desk.store.save([lesson("a", guided=(9, 9), independent=4), lesson("b", state="quarantined")])
    export = await http.get(f"{BASE}/export?tenant=acme")
    assert export.headers["content-type"].startswith("application/jsonl")
    body = {"text": export.text, "tenants": {"acme": "beta"}}
    told = (await http.post(f"{BASE}/import", json=body)).json()
    assert told == {"lessons": 2, "added": 2, "known": 0, "forgotten": 0, "quarantined": 1, "dry_run": False}
    found = {item.content: item for item in await desk.store.experiences() if item.tenant == "beta"}
    assert (found["do a"].state, found["do a"].origin) == ("candidate", "import")
    assert (found["do a"].guided, found["do a"].independent) == ((0, 0), 0)
    assert found["do b"].state == "quarantined"
    assert {item.id for item in desk.sent} == {item.id for item in found.values()}
    told = (await http.post(f"{BASE}/import", json=body)).json()
    assert (told["added"], told["known"]) == (0, 2)


@pytest.mark.promise
async def test_lessons_from_what_was_forgotten_here_do_not_come_back_by_import(
    desk: Desk, http: httpx.AsyncClient
) -> None:
    await desk.store.save([attributed("t"), lesson("a", sources=("t",)), lesson("b", sources=("other",))])
    export = (await http.get(f"{BASE}/export")).text
    assert "what?" in await refused(await http.post(f"{BASE}/forget", json={"reason": "r"}), 422)
    forgotten = await http.post(f"{BASE}/forget", json={"trajectories": ["t"], "reason": "request"})
    assert forgotten.json()["lessons"] == ["a"]
    told = (await http.post(f"{BASE}/import", json={"text": export, "tenants": {"*": "beta"}})).json()
    assert (told["added"], told["forgotten"]) == (1, 1)


async def test_a_form_on_another_page_can_do_nothing_and_bodies_are_bounded_json(
    desk: Desk, http: httpx.AsyncClient
) -> None:
    json = {"content-type": "application/json"}
    for path in ("freeze", "experience", *(f"experience/{name}" for name in ("search", "import", "forget", "a/state"))):
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = await http.post(f"/api/{path}", content=b"reason=x", headers={"content-type": kind})
            assert "application/json" in await refused(answer, 415)
        assert (await http.post(f"/api/{path}", json={}, headers={"origin": "http://evil"})).status_code == 403
        for wrong in (b"{", b'{"reason": "\xff"}', b"[1]", b'{"x":' + b"[" * 100_000):
            answer = await http.post(f"/api/{path}", content=wrong, headers=json)
            assert "the body" in await refused(answer, 422)
    large = await http.post(f"{BASE}/search", content=b" " * ((1 << 20) + 1), headers=json)
    assert "1,048,576 bytes" in await refused(large, 413)
    assert desk.ordered == []
