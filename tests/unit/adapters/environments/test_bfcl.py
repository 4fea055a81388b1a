"""BFCL without bfcl-eval: what is said then, and the translation of its schemas. The rest is in tests/bfcl."""

import sys

import pytest

from actors.ports.errors import AdapterNotSetUp
from adapters.environments.bfcl import BfclEnvironment
from adapters.environments.bfcl.catalogue import json_schema


def test_a_missing_interpreter_is_named_with_the_remedy(tmp_path):
    with pytest.raises(AdapterNotSetUp, match=r"nowhere/python: `make bfcl` sets it up, or set `python`"):
        BfclEnvironment(tmp_path / "nowhere" / "python")


def test_an_interpreter_without_bfcl_eval_is_named_with_the_remedy():
    with pytest.raises(AdapterNotSetUp, match=r"no working bfcl-eval .*No module named 'bfcl_eval'.*`make bfcl`"):
        BfclEnvironment(sys.executable)


@pytest.mark.parametrize("option", ["workers", "deadline", "max_instances", "idle_seconds", "steps_per_turn"])
def test_an_option_that_cannot_work_is_refused_by_name(option):
    with pytest.raises(AdapterNotSetUp, match=f"{option} is 0; it must be more than 0"):
        BfclEnvironment(sys.executable, **{option: 0})


def test_schemas_get_the_type_names_of_json_schema_at_every_depth():
    schema = {
        "type": "dict",
        "properties": {
            "price": {"type": "float"},
            "pair": {"type": "tuple", "items": {"type": "any"}},
            "row": {"type": "dict", "properties": {"on": {"type": "bool"}}},
            "type": {"type": "string", "enum": ["dict", "float"]},
        },
    }
    assert json_schema(schema) == {
        "type": "object",
        "properties": {
            "price": {"type": "number"},
            "pair": {"type": "array", "items": {"type": "string"}},
            "row": {"type": "object", "properties": {"on": {"type": "boolean"}}},
            "type": {"type": "string", "enum": ["dict", "float"]},
        },
    }
