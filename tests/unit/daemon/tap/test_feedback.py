"""Feedback becomes a record, or an answer that names the field and says what to do."""

import contextlib
import json
from unittest.mock import Mock

import pytest

from actors.messages import Feedback
from daemon.tap.admission import Visitor
from daemon.tap.errors import Refused
from daemon.tap.feedback import FeedbackDesk, read_feedback
from daemon.tap.metrics import Counts
from daemon.tap.request import Request
from tests.unit.daemon.tap.made import request

GOOD = {"response_id": "r", "outcome": 1}


def told(body: object, tenant: str = "acme", at: float = 5.0) -> list[Feedback]:
    found, listed = read_feedback(json.dumps(body).encode(), tenant, at)
    assert listed == isinstance(body, list)
    return found


@pytest.mark.parametrize(
    ("body", "kind", "final", "outcome"),
    [
        ({"response_id": "r", "outcome": 1}, "outcome", True, 1.0),
        ({"custom_id": "order-4711", "outcome": True}, "outcome", True, 1.0),
        ({"response_id": "r", "outcome": False}, "outcome", True, 0.0),
        ({"trajectory_id": "t", "outcome": 1, "final": False}, "outcome", False, 1.0),
        ({"trajectory_id": "t", "outcome": 0.5, "kind": "rating"}, "rating", False, 0.5),
        ({"trajectory_id": "t", "kind": "comment", "text": "late"}, "comment", False, None),
        ({"response_id": "r", "text": "wrong date"}, "comment", False, None),
        ({"response_id": "r", "text": "so", "outcome": 1}, "outcome", True, 1.0),
        ({"trajectory_id": "t", "step": 3, "outcome": 0}, "step", False, 0.0),
        ({"response_id": "r", "kind": "step", "outcome": 0}, "step", False, 0.0),
        ({"custom_id": "c", "step": 0, "outcome": 0}, "step", False, 0.0),
        ({"trajectory_id": "t", "step": 2, "text": "why this one?"}, "comment", False, None),
    ],
)
def test_what_is_said_tells_its_kind_and_only_an_outcome_ends_a_run(
    body: dict, kind: str, final: bool, outcome: float | None
) -> None:
    (found,) = told(body)
    assert (found.kind, found.final, found.outcome, found.step) == (kind, final, outcome, body.get("step"))
    for name in ("response_id", "trajectory_id", "custom_id", "text"):
        assert getattr(found, name) == body.get(name, "")
    assert (found.tenant, found.received) == ("acme", 5.0)


@pytest.mark.promise
def test_the_same_report_is_the_same_record_whenever_it_is_sent_and_any_other_is_another() -> None:
    ids = [told(GOOD, tenant, at)[0].id for tenant, at in (("acme", 1.0), ("acme", 2.0), ("other", 1.0))]
    assert ids[0] == ids[1] != ids[2]
    step = {"trajectory_id": "t", "outcome": 1}
    others = [{**GOOD, "id": "a"}, {**GOOD, "id": "b"}, {**step, "step": 0}, {**step, "step": 1}]
    assert len({*ids, *(told(body)[0].id for body in others)}) == 6


def test_a_list_is_as_many_records_in_order_and_has_an_end() -> None:
    found = told([GOOD, {"response_id": "b", "outcome": 0}])
    assert [(one.response_id, one.outcome) for one in found] == [("r", 1.0), ("b", 0.0)]
    assert found[0].id == told(GOOD)[0].id
    assert len(told([GOOD] * 1000)) == 1000
    with pytest.raises(Refused, match="1000 are taken at once"):
        told([GOOD] * 1001)


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"outcome": 1}, "response_id", "give response_id"),
        ({"response_id": "r"}, "outcome", "from 0"),
        ({"response_id": "r", "outcome": 1.5}, "outcome", "out of range"),
        ({"response_id": "r", "outcome": "good"}, "outcome", "from 0"),
        ({"response_id": "r", "outcome": 1, "kind": "verdict"}, "kind", "outcome, rating, comment or step"),
        ({"trajectory_id": "t", "outcome": 1, "kind": "step"}, "step", "from 0"),
        ({"trajectory_id": "t", "outcome": 1, "step": -1}, "step", "from 0"),
        ({"trajectory_id": "t", "outcome": 1, "step": 1.5}, "step", "from 0"),
        ({"trajectory_id": "t", "outcome": 1, "step": 1, "kind": "outcome"}, "kind", "of the whole"),
        ({"trajectory_id": "t", "outcome": 1, "step": 1, "final": True}, "final", "ends nothing"),
        ({"trajectory_id": "t", "step": 1}, "outcome", "missing"),
        ({"response_id": 7, "outcome": 1}, "response_id", "id as text"),
        ({"response_id": "r" * 300, "outcome": 1}, "response_id", "256"),
        ({"response_id": "r", "outcome": 1, "final": "yes"}, "final", "true"),
        ({"response_id": "r", "kind": "comment"}, "text", "missing"),
        ({"respons_id": "r", "outcome": 1}, "respons_id", "known are id, "),
        ({"zzz": 1}, "zzz", "known are"),
        ([GOOD, GOOD, {"response_id": "r", "outcome": 2}], "[2].outcome", "out of range"),
        ([GOOD, GOOD, {"respons_id": "r"}], "[2].respons_id", "known are id, "),
        ([GOOD, GOOD, 7], "body", ""),
        *((body, "body", "body: ") for body in (b"", b"{", b"[]", b'"x"', b"\xff", b'{"outcome": NaN}', b"[" * 5000)),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(body: dict | list | bytes, param: str, says: str) -> None:
    """One fault refuses a list as a whole, and its place in it is named."""
    with pytest.raises(Refused) as refusal:
        read_feedback(body if isinstance(body, bytes) else json.dumps(body).encode(), "acme", 5.0)
    assert (refusal.value.status, refusal.value.param) == (422, param)
    assert str(refusal.value).startswith(f"{param}: ")
    assert says in str(refusal.value)


def desk(taking: bool = True, offers: list[bool] | None = None) -> FeedbackDesk:
    recorder = Mock(taking=taking, offer=Mock(side_effect=offers or [True] * 9))
    return FeedbackDesk(recorder, Counts(), clock=lambda: 5.0)


def post(body: object = GOOD, kind: str = "application/json") -> Request:
    return request(json.dumps(body).encode(), b"/v1/feedback", content_type=kind)


@pytest.mark.parametrize(("taking", "offers"), [(False, []), (True, [True, False])], ids=["closed", "room for one"])
@pytest.mark.promise
def test_what_cannot_be_written_down_is_to_be_sent_again(taking: bool, offers: list[bool]) -> None:
    with pytest.raises(Refused) as refusal:
        desk(taking, offers).take(post([GOOD, GOOD]), Visitor("acme"), lambda data: True)
    assert refusal.value.status == 503


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("application/json", True), ("Application/JSON; charset=utf-8", True), ("", False), ("text/plain", False),
        ("application/x-www-form-urlencoded", False), ("application/jsonp", False),
    ],
)  # fmt: skip
def test_only_json_is_taken_which_no_page_may_send_unasked(kind: str, taken: bool) -> None:
    refused = contextlib.nullcontext() if taken else pytest.raises(Refused, match="content-type: application/json")
    with refused:
        desk().take(post(kind=kind), Visitor("acme"), lambda data: True)
