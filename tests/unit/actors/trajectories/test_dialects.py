"""What each dialect says becomes the same items."""

import json
from typing import Any

import pytest

from actors.dialects import DIALECTS, read_conversation
from actors.dialects.conversation import Conversation, Item
from actors.messages import Exchange, ToolCall
from actors.messages.dialects import ENDINGS, dialect_at
from actors.ports.parsed_calls import offered

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


def read(endpoint: str, request: object, response: object = None) -> Conversation:
    return read_conversation(
        Exchange(
            id="x", endpoint=endpoint, started=0.0, duration=0.0, status=200, request=json.dumps(request).encode(),
            response=json.dumps(response).encode(),
        )
    )  # fmt: skip


def test_only_endpoints_with_a_conversation_are_read() -> None:
    assert [*ENDINGS.values()] == [*DIALECTS]
    assert not any(dialect_at(path) for path in ("/v1/embeddings", "/v1/models", "/v1/audio/speech", ""))
    assert read("/v1/embeddings", {"input": "x"}) == Conversation(items=())


def output(**part: object) -> dict:
    return {"output": [{"type": "message", "role": "assistant", "content": [part]}]}


NO, WORD = "I must not.", Item("assistant", "a")
CUT = Item("assistant", "a", cut=True)
TEXT = {"type": "text", "text": "a"}
SAID = {"message": {"role": "assistant", "content": "a"}}
ANSWERS: list[tuple[str, object, list[Item]]] = [
    (CHAT, {"choices": [{"message": {"role": "assistant", "content": None, "refusal": NO}}]}, [Item("assistant", NO)]),
    (RESPONSES, output(type="refusal", refusal=NO), [Item("assistant", NO)]),
    (COMPLETIONS, {"choices": [{"text": " upon"}, {"text": " more"}]},
     [Item("assistant", " upon"), Item("assistant", " more")]),
    # A response without a word is an answer, as in a chat; an error is none.
    (RESPONSES, {"output": []}, [Item("assistant")]),
    (RESPONSES, {"output": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, [Item("assistant")]),
    (RESPONSES, {"error": "no"}, []),
    # One that ended at a limit of tokens says so.
    (CHAT, {"choices": [SAID | {"finish_reason": "length"}]}, [CUT]),
    (COMPLETIONS, {"choices": [{"text": "a", "finish_reason": "length"}]}, [CUT]),
    (MESSAGES, {"content": [TEXT], "stop_reason": "max_tokens"}, [CUT]),
    (MESSAGES, {"content": [TEXT], "stop_reason": "model_context_window_exceeded"}, [CUT]),
    (RESPONSES, output(type="output_text", text="a") | {"incomplete_details": {"reason": "max_output_tokens"}}, [CUT]),
    *((CHAT, {"choices": [SAID | {"finish_reason": why}]}, [WORD]) for why in ("stop", None, {})),
    *((MESSAGES, {"content": [TEXT], "stop_reason": why}, [WORD]) for why in ("stop", None, {})),
    *((RESPONSES, output(type="output_text", text="a") | {"incomplete_details": why}, [WORD])
      for why in ("stop", None, {})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("web_search_preview_2025_03_11", "web_search_call"), ("computer_use_preview", "computer_call"),
        ("local_shell", "local_shell_call"),
    ],
)  # fmt: skip
def test_a_call_of_a_built_in_tool_is_of_one_that_was_offered(kind: str, called: str) -> None:
    said = read(RESPONSES, {"input": "hi", "tools": [{"type": kind}]}, {"output": [{"type": called, "id": "c1"}]})
    (call,) = said.answers[0].calls
    assert offered(said.tools) == {call.name: {}}


@pytest.mark.parametrize(("endpoint", "response", "answers"), ANSWERS)
def test_what_the_model_said(endpoint: str, response: object, answers: list[Item]) -> None:
    assert list(read(endpoint, {"input": "hi"}, response).answers) == answers


OLD = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}}
RESPONSES_INPUT = [
    {"role": "user", "content": "hello"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "hm"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{}"},
    {"type": "item_reference", "id": "fc_2"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "output_text", "text": "4"}]},
    {"type": "custom_tool_call", "call_id": "c3", "name": "run", "input": "ls"},
    {"type": "something_new", "x": 1},
]
ANTHROPIC_MESSAGES = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "let me see"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
        {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "4"}]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "0", "is_error": True},
        {"type": "text", "text": "and?"},
    ]},
]  # fmt: skip
ASKED: dict[str, tuple[str, dict[str, Any], list[Item]]] = {
    "the old function call is a tool call": (
        CHAT, {"messages": [OLD, {"role": "function", "name": "add", "content": "4"}]},
        [Item("assistant", "", (ToolCall("add", "{}", ""),)), Item("tool", "4")],
    ),
    "a text completion is one question": (COMPLETIONS, {"prompt": "once"}, [Item("user", "once")]),
    "items of the responses API": (
        RESPONSES, {"instructions": "desk", "input": RESPONSES_INPUT},
        [
            Item("system", "desk"), Item("user", "hello"),
            Item("assistant", "hm", (ToolCall("add", "{}", "c1"),), "", ("msg_1", "fc_1", "fc_2")),
            Item("tool", "4", (), "c1"), Item("assistant", "", (ToolCall("run", "ls", "c3"),)),
        ],
    ),
    "blocks of Anthropic's API": (
        MESSAGES, {"system": "desk", "messages": ANTHROPIC_MESSAGES},
        [
            Item("system", "desk"), Item("user", "hello"),
            Item("assistant", "let me see", (ToolCall("add", '{"a":2}', "toolu_1"), ToolCall("add", "{}", "toolu_2"))),
            Item("tool", "4", (), "toolu_1"), Item("tool", "[the call failed] 0", (), "toolu_2"), Item("user", "and?"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("endpoint", "request_body", "items"), ASKED.values(), ids=ASKED)
def test_what_was_said_before(endpoint: str, request_body: dict, items: list[Item]) -> None:
    assert read(endpoint, request_body).items == items
