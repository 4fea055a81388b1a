"""Token ids of an answer: those that overlap a find are masked, others stay; what cannot be told goes as a whole."""

import json
from typing import Any

import pytest

from actors.messages import Exchange, floats_array, ids_array
from actors.messages.spool import RawExchange
from adapters.intake.tap import exchange_from_raw
from adapters.redaction import RedactionSettings, Redactor

pytestmark = pytest.mark.promise

MAIL = "ann.smith@example.com"
PATH = "/v1/chat/completions"


def answered(
    pieces: list[str], *, message: dict[str, Any] | None = None, prompt: str = "hello", streamed: bool = False,
    told: bool = True, choices: int = 1,
) -> Exchange:  # fmt: skip
    """What is kept of a call whose answer was sampled in `pieces`, ids from 100 on."""
    entries = [{"token": piece if told else f"token_id:{at}", "logprob": -0.5 - at} for at, piece in enumerate(pieces)]
    shown = message or {"role": "assistant", "content": "".join(pieces)}
    base = {"id": "chatcmpl-1", "model": "m", "prompt_token_ids": [1, 2, 3]}
    if streamed:
        chunks = [
            {"index": 0, "delta": {"content": piece}, "token_ids": [100 + at], "logprobs": {"content": [entries[at]]}}
            for at, piece in enumerate(pieces)
        ]
        events = [base | {"choices": [one]} for one in [*chunks, {"index": 0, "delta": {}, "finish_reason": "stop"}]]
        response = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    else:
        choice = {
            "message": shown, "finish_reason": "stop", "token_ids": list(range(100, 100 + len(pieces))),
            "logprobs": {"content": entries},
        }  # fmt: skip
        response = json.dumps(base | {"choices": [choice | {"index": at} for at in range(choices)]}).encode()
    request = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    raw = RawExchange(
        id="0" * 32, path=PATH, received=1.0, finished=2.0, status=200, tokens_requested=True,
        content_type="text/event-stream" if streamed else "application/json", request=json.dumps(request).encode(),
        response=response, complete=True,
    )  # fmt: skip
    clean = Redactor(RedactionSettings()).exchange(raw)
    assert MAIL.encode() not in clean.response + clean.request
    return exchange_from_raw(clean)


@pytest.mark.parametrize("streamed", [False, True])
def test_tokens_that_overlap_a_find_are_masked_and_the_others_keep_id_and_log_prob(streamed: bool) -> None:
    call = answered(["Write ", "to <ann", ".smith", "@example.com>", " now"], streamed=streamed)
    assert ids_array(call.response_ids).tolist() == [100, -1, -1, -1, 104]
    assert floats_array(call.logprobs).tolist() == [-0.5, 0.0, 0.0, 0.0, -4.5]
    assert call.masked == ("to <[REDACTED:email]>",)
    assert ids_array(call.prompt_ids).tolist() == [1, 2, 3]
    assert call.why_no_tokens == ""


@pytest.mark.parametrize("streamed", [False, True])
def test_a_redacted_prompt_loses_its_ids_and_the_answer_keeps_its_own(streamed: bool) -> None:
    call = answered(["Done", "."], prompt=f"I am {MAIL}", streamed=streamed)
    assert (call.prompt_ids, ids_array(call.response_ids).tolist()) == (b"", [100, 101])
    assert (call.redacted, call.masked) == (("prompt",), ())


def test_a_find_in_a_tool_calls_arguments_is_masked_in_what_was_sampled_for_it() -> None:
    pieces = [
        "<tool_call>",
        '{"name": "send", "arguments": {"to": "',
        "ann.smith",
        "@example.com",
        '"}}',
        "</tool_call>",
    ]
    function = {"name": "send", "arguments": json.dumps({"to": MAIL})}
    call = answered(pieces, message={"role": "assistant", "tool_calls": [{"id": "c", "function": function}]})
    assert ids_array(call.response_ids).tolist() == [100, 101, -1, -1, 104, 105]
    assert call.masked == ("[REDACTED:email]",)


def test_what_json_spells_otherwise_is_found_in_what_was_sampled() -> None:
    word = "Müll-Straße99x"
    pieces = ['{"password": "', "M\\u00fcll-Stra", "\\u00dfe99x", '"}']
    function = {"name": "login", "arguments": json.dumps({"password": word}, ensure_ascii=False)}
    call = answered(pieces, message={"role": "assistant", "tool_calls": [{"id": "c", "function": function}]})
    assert call.redacted == ("response",)
    assert ids_array(call.response_ids).tolist() == [100, -1, -1, 103]


def test_what_was_found_in_the_prompt_is_masked_where_only_the_sampled_text_has_it() -> None:
    """Reasoning that the engine does not show is sampled all the same."""
    shown = {"role": "assistant", "content": "done"}
    call = answered(["<think>", MAIL, "</think>", "done"], message=shown, prompt=f"I am {MAIL}")
    assert ids_array(call.response_ids).tolist() == [100, -1, 102, 103]


@pytest.mark.parametrize("how", ["no texts", "another text", "two choices"])
def test_where_the_tokens_of_a_find_cannot_be_told_none_is_kept(how: str) -> None:
    pieces = ["it is ", MAIL]
    if how == "no texts":
        call = answered(pieces, told=False)
    elif how == "two choices":
        call = answered(pieces, choices=2)
    else:
        call = answered(["it is ", "ann.smith(at)example.com"], message={"role": "assistant", "content": MAIL})
    assert (call.prompt_ids, call.response_ids, call.logprobs) == (b"", b"", b"")
    assert call.why_no_tokens == "redacted response"
