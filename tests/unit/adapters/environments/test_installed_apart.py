"""AppWorld and BFCL where they are not installed: what is said then, the code of a call, documentation as tools.

How they play is in tests/appworld and tests/bfcl, which have them.
"""

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.appworld import AppWorldEnvironment
from adapters.environments.appworld.catalogue import Catalogue
from adapters.environments.appworld.catalogue import json_schema as schema_of_appworld
from adapters.environments.appworld.code import rendered
from adapters.environments.appworld.servers import MOST_DEATHS, ServerPool
from adapters.environments.bfcl import BfclEnvironment
from adapters.environments.bfcl.catalogue import json_schema as schema_of_bfcl

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text().filter(lambda name: not name.startswith("_") and name != "raise_on_failure")


def appworld(root: Path, **options: Any) -> AppWorldEnvironment:
    return AppWorldEnvironment(root, **{"python": sys.executable, **options})


def bfcl(root: Path, **options: Any) -> BfclEnvironment:
    return BfclEnvironment(**{"python": sys.executable, **options})


@pytest.mark.parametrize(
    ("make", "options", "told"),
    [
        (appworld, {"python": "/nowhere/python"}, r"nowhere/python: `make appworld` sets it up, or set `python`"),
        (appworld, {}, r"has no AppWorld, not 0\.1\.3\.post1; `make appworld`"),
        (appworld, {"heldout": "train"}, "heldout is 'train'; it must be one of dev, test_normal, test_challenge"),
        *((appworld, {name: 0}, f"{name} is 0; it must be more") for name in ("max_steps", "wait_seconds", "deadline")),
        (bfcl, {"python": "/nowhere/python"}, r"nowhere/python: `make bfcl` sets it up, or set `python`"),
        (bfcl, {}, r"no working bfcl-eval .*No module named 'bfcl_eval'.*`make bfcl`"),
        *((bfcl, {name: 0}, f"{name} is 0; it must be more") for name in ("workers", "idle_seconds", "steps_per_turn")),
    ],
)
def test_what_is_missing_or_cannot_work_is_named_with_the_remedy(
    make: Callable[..., object], options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(AdapterNotSetUp, match=told):
        make(tmp_path, **options)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_call_is_one_expression_whose_arguments_are_the_literals_that_were_given(arguments):
    code = rendered("gmail", "send_email", json.dumps(arguments))
    assert code.isascii()
    assert "\n" not in code
    (statement,) = ast.parse(code).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert ast.unparse(statement.value.func) == "print"
    (call,) = statement.value.args
    assert isinstance(call, ast.Call)
    assert (ast.unparse(call.func), call.args) == ("apis.gmail.send_email", [])
    assert [keyword.arg for keyword in call.keywords] == [None]
    assert ast.literal_eval(call.keywords[0].value) == arguments


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a": 1' + "0" * 6000 + "}", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"a": NaN}', "not finite"),
        ('{"a": 1e999}', "not finite"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", "nested"),
        ('{"a": "' + "b" * (1 << 20) + '"}', "more than 1048576 characters"),
        ('{"_system_datetime": 1}', "no argument '_system_datetime'"),
        ('{"raise_on_failure": false}', "no argument 'raise_on_failure'"),
    ],
)
def test_arguments_that_cannot_be_a_calls_say_why(arguments, why):
    with pytest.raises(ValueError, match=why):
        rendered("gmail", "send_email", arguments)


def test_types_get_the_form_of_json_schema_at_every_depth():
    assert schema_of_appworld("list[number]") == {"type": "array", "items": {"type": "number"}}
    assert schema_of_appworld("integer | string") == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert schema_of_appworld("dict") == {}
    pair = {"type": "tuple", "items": {"type": "any"}}
    kind = {"type": "string", "enum": ["dict", "float"]}
    row = {"type": "dict", "properties": {"on": {"type": "float"}, "pair": pair, "type": kind}}
    assert schema_of_bfcl({"type": "dict", "properties": {"row": row}})["properties"]["row"] == {
        "type": "object",
        "properties": {
            "on": {"type": "number"},
            "pair": {"type": "array", "items": {"type": "string"}},
            "type": kind,
        },
    }


def written(root: Path, *, shop: str = "buy") -> Path:
    """A data directory in AppWorld's format, with apps that do not exist there."""
    person = {"first_name": "A", "last_name": "B", "email": "a@example.com", "phone_number": "1"}
    specs = {"instruction": "Do.", "datetime": "2023-01-01T00:00:00", "supervisor": person, "db_version": "0"}
    size = {"name": "size", "type": "string", "required": True, "description": "How big.", "default": None}
    count = {"name": "count", "type": "integer", "required": False, "description": "", "default": 3}
    parameters = [{**size, "constraints": ["value in ['big', 'small']"]}, {**count, "constraints": ["value >= 1"]}]
    files = {
        "api_docs/standard/bakery.json": {"bake": {"description": "Bake bread.", "parameters": parameters}},
        "api_docs/standard/supervisor.json": {"complete_task": {"description": "End.", "parameters": []}},
        "api_docs/standard/shop.json": {shop: {"description": "Buy.", "parameters": []}},
    }
    for number, dataset in enumerate(("train", "dev", "test_normal")):
        files[f"tasks/aaa{number}_1/specs.json"] = specs
        files[f"tasks/aaa{number}_1/ground_truth/metadata.json"] = {"difficulty": number + 1}
        files[f"datasets/{dataset}.txt"] = f"aaa{number}_1:tag\n"
    for name, content in files.items():
        (root / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "data" / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def test_documentation_becomes_tools_with_what_it_says_about_values(tmp_path):
    catalogue = Catalogue(written(tmp_path), None, "dev", "")
    assert catalogue.tools["bakery__bake"]["function"] == {
        "name": "bakery__bake",
        "description": "Bake bread.",
        "parameters": {
            "type": "object",
            "properties": {
                "size": {"type": "string", "enum": ["big", "small"], "description": "How big"},
                "count": {"type": "integer", "default": 3, "description": "value >= 1"},
            },
            "required": ["size"],
        },
    }
    assert catalogue.apis["bakery__bake"] == ("bakery", "bake")
    assert catalogue.profile().entities["size"] == ("big", "small")
    few = Catalogue(tmp_path, ["shop"], "dev", "")
    assert sorted(few.tools) == ["shop__buy", "supervisor__complete_task"]


def test_data_that_is_missing_damaged_or_code_is_named(tmp_path):
    def told(match: str, apps: list[str] | None = None) -> None:
        with pytest.raises(AdapterNotSetUp, match=match):
            Catalogue(tmp_path, apps, "dev", "download it")

    told(r"data is missing .*train\.txt.*; download it")
    written(tmp_path, shop="os); print(1")
    told("cannot be the name of a tool")
    written(tmp_path)
    told("no app 'garage'; it has bakery, shop, supervisor", ["garage"])
    (tmp_path / "data/tasks/aaa0_1/specs.json").write_text("{")
    told(r"aaa0_1/specs\.json cannot be read: .*; download it")


@pytest.mark.anyio
async def test_a_process_that_dies_at_every_start_is_not_started_for_ever(tmp_path):
    now = [0.0]
    pool = ServerPool(
        [sys.executable, "-I", "-c", "raise SystemExit(3)"], {}, tmp_path, most=1, wait_seconds=1.0, deadline=30.0,
        start_seconds=30.0, idle=60.0, clock=lambda: now[0],
    )  # fmt: skip
    for _ in range(MOST_DEATHS):
        with pytest.raises(EnvironmentFailed, match="the worker has died"):
            await pool.open("aaa0_1")
    with pytest.raises(EnvironmentFailed, match="died 5 times within 60 seconds; try again later"):
        await pool.open("aaa0_1")
    now[0] = 61.0
    with pytest.raises(EnvironmentFailed, match="the worker has died"):
        await pool.open("aaa0_1")
