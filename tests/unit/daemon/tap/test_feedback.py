"""Feedback becomes a record, or an answer that names the field and says what to do."""

import json
from dataclasses import dataclass, field

import pytest

from actors.messages import Feedback, Message
from daemon.tap.admission import Visitor
from daemon.tap.errors import Refused
from daemon.tap.feedback import FeedbackDesk, read_feedback
from daemon.tap.metrics import Counts
from daemon.tap.request import Head, Request


def read(**body: object) -> Feedback:
    (feedback,), listed = read_feedback(json.dumps(body).encode(), "acme", 5.0)
    assert not listed
    return feedback


def read_list(*bodies: object) -> list[Feedback]:
    found, listed = read_feedback(json.dumps(bodies).encode(), "acme", 5.0)
    assert listed
    return found


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


@pytest.mark.promise
def test_the_same_report_is_the_same_record_whenever_it_is_sent() -> None:
    body = json.dumps({"response_id": "r1", "outcome": 1}).encode()
    ids = [read_feedback(body, tenant, at)[0][0].id for tenant, at in (("acme", 1.0), ("acme", 2.0), ("other", 1.0))]
    assert ids[0] == ids[1] != ids[2]


def test_what_is_said_of_one_step_is_another_record_than_of_the_next() -> None:
    ids = {read(trajectory_id="t", step=step, outcome=1).id for step in (0, 1, 2)}
    assert len(ids) == 3


def test_feedback_may_name_the_id_that_the_caller_gave_its_call() -> None:
    feedback = read(custom_id="order-4711", outcome=True)
    assert (feedback.custom_id, feedback.outcome, feedback.kind, feedback.final) == ("order-4711", 1.0, "outcome", True)


def test_what_is_said_of_a_step_ends_nothing() -> None:
    for body in (
        {"trajectory_id": "t", "step": 3},
        {"response_id": "r", "kind": "step"},
        {"custom_id": "c", "step": 0},
    ):
        feedback = read(outcome=0, **body)
        assert (feedback.kind, feedback.final, feedback.step) == ("step", False, body.get("step"))


def test_words_alone_are_a_comment() -> None:
    assert (read(response_id="r", text="wrong date").kind, read(response_id="r", text="so", outcome=1).kind) == (
        "comment",
        "outcome",
    )
    assert read(trajectory_id="t", step=2, text="why this one?").step == 2


def test_a_list_is_as_many_records_in_order() -> None:
    found = read_list({"response_id": "a", "outcome": 1}, {"response_id": "b", "outcome": 0})
    assert [(one.response_id, one.outcome) for one in found] == [("a", 1.0), ("b", 0.0)]
    assert found[0].id == read(response_id="a", outcome=1).id


@pytest.mark.parametrize(
    ("fault", "param"),
    [
        ({"response_id": "r", "outcome": 2}, "[2].outcome"),
        ({"response_id": "r", "outcome": "x"}, "[2].outcome"),
        ({"respons_id": "r", "outcome": 1}, "[2].respons_id"),
        ({"outcome": 1}, "[2].response_id"),
        (7, "body"),
    ],
)
def test_one_fault_refuses_the_list_and_names_its_place(fault: object, param: str) -> None:
    good = {"response_id": "r", "outcome": 1}
    with pytest.raises(Refused) as refusal:
        read_list(good, good, fault)
    assert (refusal.value.status, refusal.value.param) == (422, param)


def test_a_list_has_an_end() -> None:
    assert len(read_list(*[{"response_id": "r", "outcome": 1}] * 1000)) == 1000
    with pytest.raises(Refused, match="1000 are taken at once"):
        read_list(*[{"response_id": "r", "outcome": 1}] * 1001)


def test_an_id_tells_equal_reports_apart() -> None:
    assert read(id="a", response_id="r1", outcome=1).id != read(id="b", response_id="r1", outcome=1).id


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


# -- the desk --


@dataclass
class Spool:
    """Takes the first `room` records."""

    room: int = 1000
    taking: bool = True
    records: list[Message] = field(default_factory=list)

    def offer(self, record: Message) -> bool:
        if len(self.records) < self.room:
            self.records.append(record)
            return True
        return False


def post(spool: Spool, body: object, visitor: Visitor | None = None) -> tuple[dict, Counts]:
    counts = Counts()
    desk = FeedbackDesk(spool, counts, clock=lambda: 5.0)
    sent = json.dumps(body).encode()
    request = Request(Head(b"POST", b"/v1/feedback", b"/v1/feedback", []), sent, 1.0)
    data, told = desk.answer(request, visitor or Visitor("acme"))
    if visitor is None or visitor.keep:
        counts.feedback["told"] += told
    return json.loads(data.partition(b"\r\n\r\n")[2]), counts


def test_the_answer_names_the_record() -> None:
    spool = Spool()
    answer, counts = post(spool, {"response_id": "r", "outcome": 1})
    (record,) = spool.records
    assert isinstance(record, Feedback)
    assert (answer, record.tenant) == ({"id": record.id, "object": "evolved.feedback"}, "acme")
    assert counts.feedback == {"told": 1}


def test_a_list_is_answered_with_a_list() -> None:
    spool = Spool()
    answer, counts = post(spool, [{"response_id": "a", "outcome": 1}, {"response_id": "b", "outcome": 0}])
    assert [one["id"] for one in answer["data"]] == [record.id for record in spool.records]
    assert counts.feedback == {"told": 2}


@pytest.mark.promise
def test_who_opts_out_is_answered_and_not_kept() -> None:
    spool = Spool()
    visitor = Visitor("acme", keep=False, why_not="opted_out")
    answer, counts = post(spool, {"response_id": "r", "outcome": 1}, visitor)
    assert (answer["kept"], spool.records) == (False, [])
    assert counts.feedback == {"opted_out": 1}


@pytest.mark.parametrize("spool", [Spool(taking=False), Spool(room=1)])
@pytest.mark.promise
def test_what_cannot_be_written_down_is_to_be_sent_again(spool: Spool) -> None:
    with pytest.raises(Refused) as refusal:
        post(spool, [{"response_id": "a", "outcome": 1}, {"response_id": "b", "outcome": 0}])
    assert refusal.value.status == 503
