"""Arguments against the JSON schema of a tool."""

import socket
import time

import pytest

from actors.ports.json_schema import fits

OBJECT = {
    "type": "object",
    "properties": {"to": {"type": "string", "minLength": 1}, "seats": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["to"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "schema", "fine"),
    [
        ({"to": "Oslo"}, OBJECT, True),
        ({"to": "Oslo", "seats": 2}, OBJECT, True),
        ({"to": "Oslo", "seats": 2.0}, OBJECT, True),
        ({}, OBJECT, False),
        ({"to": ""}, OBJECT, False),
        ({"to": 7}, OBJECT, False),
        ({"to": "Oslo", "seats": 0}, OBJECT, False),
        ({"to": "Oslo", "seats": 1.5}, OBJECT, False),
        ({"to": "Oslo", "seats": True}, OBJECT, False),
        ({"to": "Oslo", "by": "train"}, OBJECT, False),
        ([], OBJECT, False),
        (["a", "b"], {"type": "array", "items": {"type": "string"}, "maxItems": 2}, True),
        (["a", 1], {"type": "array", "items": {"type": "string"}}, False),
        (["a", "b", "c"], {"type": "array", "maxItems": 2}, False),
        ("red", {"enum": ["red", "green"]}, True),
        ("blue", {"enum": ["red", "green"]}, False),
        (1, {"const": 1}, True),
        (2, {"const": 1}, False),
        (None, {"type": ["string", "null"]}, True),
        (1, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, True),
        (1.5, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, False),
        (1, {"oneOf": [{"type": "number"}, {"type": "integer"}]}, False),
        ("x", {"allOf": [{"type": "string"}, {"minLength": 2}]}, False),
        ({"x": 1}, {"additionalProperties": {"type": "string"}}, False),
    ],
)
def test_fits(value, schema, fine):
    assert fits(value, schema) is fine


@pytest.mark.parametrize("schema", [None, {}, True, "nonsense", {"type": "date"}, {"$ref": "#/x"}, {"required": "to"}])
def test_what_is_not_understood_allows_everything(schema):
    assert fits({"to": 1}, schema)


def test_a_schema_that_contains_itself_comes_to_an_end():
    schema: dict = {"type": "array"}
    schema["items"] = schema
    value: list = []
    value.append(value)
    assert fits(value, schema)


def test_references_are_followed_within_the_schema():
    schema = {"properties": {"leg": {"$ref": "#/$defs/Leg"}}, "$defs": {"Leg": OBJECT}}
    assert fits({"leg": {"to": "Oslo"}}, schema)
    assert not fits({"leg": {"by": "train"}}, schema)


def test_no_schema_makes_us_fetch_anything():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        assert fits({"to": 1}, {"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"})
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_schema_that_would_take_for_ever_is_given_up_as_one_that_allows_everything():
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    slow = {"$ref": "#/$defs/d0", "$defs": {**twice, "d40": {}}}
    deep: dict = {"type": "string"}
    for _ in range(10_000):
        deep = {"allOf": [deep]}
    began = time.process_time()
    for schema in (slow, deep, {"type": "string", "pattern": "(a+)+$"}):
        assert fits("a" * 40 + "!", schema)
    assert time.process_time() - began < 2.0
