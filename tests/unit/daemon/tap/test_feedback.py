"""Feedback becomes a record, or an answer that names the field and says what to do."""

import json

import pytest

from daemon.tap.errors import Refused
from daemon.tap.feedback import read_feedback


def read(**body: object):
    return read_feedback(json.dumps(body).encode(), "acme", 5.0)


def test_an_outcome_by_response_id() -> None:
    feedback = read(response_id="r1", outcome=1)
    assert (feedback.response_id, feedback.outcome, feedback.kind, feedback.final) == ("r1", 1.0, "outcome", True)
    assert (feedback.tenant, feedback.received) == ("acme", 5.0)


def test_a_boolean_is_an_outcome() -> None:
    assert read(response_id="r1", outcome=False).outcome == 0.0


def test_only_an_outcome_ends_a_trajectory_by_default() -> None:
    assert not read(trajectory_id="t", outcome=0.5, kind="rating").final
    assert not read(trajectory_id="t", kind="comment", text="late").final
    assert not read(trajectory_id="t", outcome=1, final=False).final


def test_the_same_report_is_the_same_record_whenever_it_is_sent() -> None:
    body = json.dumps({"response_id": "r1", "outcome": 1}).encode()
    assert read_feedback(body, "acme", 1.0).id == read_feedback(body, "acme", 2.0).id
    assert read_feedback(body, "acme", 1.0).id != read_feedback(body, "other", 1.0).id


def test_an_id_tells_equal_reports_apart() -> None:
    assert read(id="a", response_id="r1", outcome=1).id != read(id="b", response_id="r1", outcome=1).id


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"outcome": 1}, "response_id", "give response_id"),
        ({"response_id": "r"}, "outcome", "from 0"),
        ({"response_id": "r", "outcome": 1.5}, "outcome", "out of range"),
        ({"response_id": "r", "outcome": "good"}, "outcome", "from 0"),
        ({"response_id": "r", "outcome": 1, "kind": "verdict"}, "kind", "outcome, rating or comment"),
        ({"response_id": 7, "outcome": 1}, "response_id", "id as text"),
        ({"response_id": "r" * 300, "outcome": 1}, "response_id", "256"),
        ({"response_id": "r", "outcome": 1, "final": "yes"}, "final", "true"),
        ({"response_id": "r", "kind": "comment"}, "text", "missing"),
        ({"respons_id": "r", "outcome": 1}, "respons_id", "did you mean response_id?"),
        ({"zzz": 1}, "zzz", "known are"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(body: dict, param: str, says: str) -> None:
    with pytest.raises(Refused) as refusal:
        read(**body)
    assert (refusal.value.status, refusal.value.param) == (422, param)
    assert str(refusal.value).startswith(f"{param}: ")
    assert says in str(refusal.value)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"outcome": NaN}', b"[" * 5000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        read_feedback(body, "acme", 5.0)
    assert (refusal.value.status, refusal.value.param) == (422, "body")
