"""Records as lines: what goes out comes back the same, to the last bit, and what is no record says what is wrong."""

import base64
import json

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.messages import Exchange, Feedback, Step, TokenRow, ToolCall, Trajectory, pack_array
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.jsonl import InvalidLine, Record, from_line, to_line
from tests.support.credited import attributed
from tests.support.traffic import exchange

FLOATS = st.lists(st.floats(width=32), min_size=1, max_size=20)
CHAT = {
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "4", "weight": 1},
    ],
    "tools": [{"type": "function", "function": {"name": "add"}}],
    "outcome": 1.0,
}  # fmt: skip


def row(logprobs: list[float]) -> TokenRow:
    n = len(logprobs)
    return TokenRow(
        ids=pack_array(range(n), "<i4"), step=pack_array([0] * n, "<i2"), logprobs=pack_array(logprobs, "<f4"),
        versions=pack_array([-1] * n, "<i4"), hint=(0, n), temperature=0.1,
    )  # fmt: skip


def trajectory(logprobs: list[float], text: str = "é\n\u2028") -> Trajectory:
    step = Step(exchange_id="x", response_id="r", text=text, tool_calls=(ToolCall("t", "{}", "c"),), row=0)
    return Trajectory(
        id="t", goal=text, tools=b'[{"a" : 1.50}]', steps=(step,), rows=(row(logprobs),), outcome=1 / 3,
        closed_by="feedback", started=1.1, ended=2.2, trainable=False, why_not="temperature", min_version=3,
    )  # fmt: skip


def read(line: bytes) -> Record:
    (found,) = from_line(line, tenant="t", now=0.0)
    return found


def line(**changes: object) -> bytes:
    plain = json.loads(to_line(trajectory([-0.5, -1.5])))
    return msgspec.json.encode({**plain, **changes})


def rows(**changes: object) -> bytes:
    """A trajectory with one row, of one token."""
    return line(rows=[msgspec.to_builtins(row([-0.5]), builtin_types=(bytes,)) | changes])


@given(FLOATS, st.text())
def test_trajectories_come_back_bit_for_bit(logprobs: list[float], text: str) -> None:
    run = trajectory(logprobs, text)
    found = read(to_line(run))
    assert isinstance(found, Trajectory)
    assert np.array_equal(
        np.frombuffer(found.rows[0].logprobs, "<f4"), np.frombuffer(run.rows[0].logprobs, "<f4"), equal_nan=True
    )
    same = (msgspec.structs.replace(found.rows[0], logprobs=run.rows[0].logprobs),)
    assert msgspec.structs.replace(found, rows=same) == run


@given(st.binary(), st.binary())
@example(b"", b"\r0")
@example(b" {}\t", b"[1,\n2]")
def test_calls_come_back_with_bodies_of_any_bytes(request: bytes, response: bytes) -> None:
    call = exchange("run", 1, request=request, response=response, finds={"email": 2}, redacted=("prompt",))
    found = to_line(call)
    assert b"\n" not in found
    back = read(found)
    assert isinstance(back, Exchange)
    for name, body in (("request", request), ("response", response)):
        # Only JSON may differ, and only in the blanks around it and in those for its line breaks.
        if getattr(back, name) != body:
            assert getattr(back, name) == body.translate(bytes.maketrans(b"\r\n", b"  ")).strip(b" \t")
            json.loads(body)
    assert msgspec.structs.replace(back, request=request, response=response) == call


def test_records_of_other_kinds_come_back() -> None:
    judged = msgspec.structs.replace(attributed("t"), trajectory=trajectory([-1.0]))
    said = Feedback(id="f", received=1.5, custom_id="mine", outcome=0.25, step=3, kind="step", text="good")
    for record in (judged, said, exchange("run", 0, explicit=True, version=3)):
        assert read(to_line(record)) == record


def test_a_line_can_be_read_by_a_person() -> None:
    plain = json.loads(to_line(trajectory([-0.5, float("nan"), float("-inf")])))
    assert np.frombuffer(base64.b64decode(plain["rows"][0]["ids"]), "<i4").tolist() == [0, 1, 2]
    assert plain["tools"] == [{"a": 1.5}]
    call = json.loads(to_line(exchange("run", 0)))
    assert call["request"]["messages"][1] == {"role": "user", "content": "goal of run"}


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"nonsense", "JSON is malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"type": "batch"}', "'batch' is none of"),
        (b'{"type": ["x"]}', "at `\\$.type`"),
        (b'{"type": "exchange"}', "required field"),
        (b'{"type": "attributed", "id": "x"}', "required field `trajectory`"),
        (line(schema=99), "newer evolved"),
        (line(goal=7), "goal"),
        (line(rows=7), "Expected `array`"),
        (line(steps=[]), "without steps"),
        (rows(logprobs=b""), "as many tokens"),
        (rows(ids=b"123", step=b"12", logprobs=b"123", versions=b"123"), "as many tokens"),
        (rows(step=pack_array([1], "<i2")), "a step that is not there"),
        (rows(hint=[0, 2]), "hint"),
        (line(rows=[{"ids": "no base64!"}]), "base64"),
        (line(rows=[{"ids": [1]}]), "got `array`"),
        (to_line(exchange("run", 0, response_ids=b"123")), "four bytes a token"),
        (line(rows=[]), "a row that is not there"),
    ],
)
def test_a_line_that_is_no_record_says_what_is_wrong(broken: bytes, why: str) -> None:
    with pytest.raises(InvalidLine, match=why):
        read(broken)


def test_a_conversation_is_as_many_calls_as_it_has_answers_and_ends() -> None:
    first, second, end = from_line(json.dumps(CHAT).encode(), tenant="acme", now=100.0)
    assert [type(one) for one in (first, second, end)] == [Exchange, Exchange, Feedback]
    one, two = read_turn(first), read_turn(second)
    assert (one.goal, one.answers[0].calls[0].name) == ("2+2?", "add")
    assert one.tools == b'[{"type":"function","function":{"name":"add"}}]'
    assert (two.observation, two.answers[0].text, two.history) == ("4", "4", one.answers[0].future)
    assert {one.explicit, two.explicit} == {end.trajectory_id}
    assert (one.tenant, one.why_not, end.outcome, end.final) == ("acme", "imported", 1.0, True)
    assert first.started < second.started
    ids = [
        [record.id for record in from_line(json.dumps(CHAT).encode(), tenant=tenant, now=now)]
        for tenant, now in (("acme", 1.0), ("b", 1.0))
    ]
    assert ids[0] == [first.id, second.id, end.id], "the same conversation always has the same ids"
    assert not set(ids[0]) & set(ids[1])


def test_a_conversation_in_which_nobody_answers_is_refused() -> None:
    asked, answered = {"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}
    bodies = [{"messages": said} for said in ([], [asked], [answered], "x")]
    for body in (*bodies, {**CHAT, "outcome": "good"}):
        with pytest.raises(InvalidLine):
            from_line(json.dumps(body).encode(), tenant="t", now=0.0)


def test_a_line_is_taken_for_what_it_has_in_it() -> None:
    told = {"trajectory": "trajectories", "attributed": "trajectories", "exchange": "exchanges", "feedback": "feedback"}
    lines = {json.dumps({"type": name}).encode(): f"holds {kind}," for name, kind in told.items()}
    lines |= {b'{"messages": []}': "holds chat,", b"{}": "none of", b'{"type": "x"}': "none of"}
    lines |= {b'{"type": {}}': "Expected `str`", b'{"type": "\xff"}': "utf-8"}
    for one, why in lines.items():
        with pytest.raises(InvalidLine, match=why):
            from_line(one, tenant="t", now=0.0, kind="neither")
