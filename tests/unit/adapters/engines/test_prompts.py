"""Messages to ids, and ids to text."""

import json

import pytest

from adapters.engines.embedded.prompts import Prompts, Writer
from adapters.engines.embedded.requests import BadRequest
from tests.support import checkpoints

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (("search", {"to": {}, "day": {}}), ("finish", {}))
]
CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"to": "Ålesund"}'}}
CONVERSATION = [
    {"role": "user", "content": "To Oslo, please — 'søk' & <book>"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "[]"},
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return checkpoints.write(tmp_path_factory.mktemp("prompts") / "a", 1)


@pytest.fixture(scope="module")
def prompts(directory):
    return Prompts(directory)


@pytest.mark.torch
def test_ids_are_those_of_transformers(directory, prompts):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(directory)
    # vLLM, too, hands arguments to the template as an object.
    parsed = json.loads(json.dumps(CONVERSATION))
    parsed[1]["tool_calls"][0]["function"]["arguments"] = {"to": "Ålesund"}
    for tools in (None, TOOLS):
        text = theirs.apply_chat_template(parsed, tools=tools, add_generation_prompt=True, tokenize=False)
        assert prompts.text(CONVERSATION, tools) == text
        assert prompts.encode(text) == theirs(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"content": "x"}, r"messages\[0\] has no role"),
        ({"role": "user", "content": 3}, r"messages\[0\]\.content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, r"messages\[0\]\.content"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, r"tool_calls\[0\] has no function"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "is no JSON"),
    ],
)
def test_a_message_that_cannot_be_rendered_is_named(prompts, message, says):
    with pytest.raises(BadRequest, match=says):
        prompts.text([message], None)


def test_a_template_cannot_reach_into_the_process(directory, tmp_path):
    hostile = checkpoints.write(tmp_path / "hostile", 1)
    settings = json.loads((hostile / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    (hostile / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(BadRequest, match="template"):
        Prompts(hostile).text([{"role": "user", "content": "x"}], None)


@pytest.mark.parametrize("text", ["plain", "søk — 漢字 🛫 end", "🛫"])
def test_a_writer_gives_whole_characters_that_add_up(prompts, text):
    ids = prompts.encode(text)
    assert len(ids) >= len(text)
    writer = Writer(prompts)
    pieces = [writer.add([token]) for token in ids]
    assert "".join(pieces) + writer.add([], last=True) == text
    assert not any("\ufffd" in piece for piece in pieces)
