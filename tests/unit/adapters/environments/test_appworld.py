"""AppWorld without AppWorld: what is said then, the code of a call, its documentation as tools, restarts that end."""

import ast
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.appworld import AppWorldEnvironment
from adapters.environments.appworld.catalogue import Catalogue, json_schema
from adapters.environments.appworld.code import rendered
from adapters.environments.appworld.servers import MOST_DEATHS, ServerPool

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text().filter(lambda name: not name.startswith("_") and name != "raise_on_failure")


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


def test_half_a_surrogate_pair_is_replaced():
    assert rendered("a", "b", '{"\\ud800": "\\udfff!"}') == "print(apis.a.b(**{'?': '?!'}))"


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


def test_a_missing_interpreter_is_named_with_the_remedy(tmp_path):
    with pytest.raises(AdapterNotSetUp, match=r"nowhere/python: `make appworld` sets it up, or set `python`"):
        AppWorldEnvironment(tmp_path, python=tmp_path / "nowhere" / "python")


def test_an_interpreter_without_appworld_is_named_with_the_remedy(tmp_path):
    with pytest.raises(AdapterNotSetUp, match=r"has no AppWorld, not 0\.1\.3\.post1; `make appworld`"):
        AppWorldEnvironment(tmp_path, python=sys.executable)


@pytest.mark.parametrize("option", ["max_steps", "max_instances", "wait_seconds", "deadline", "idle_seconds"])
def test_an_option_that_cannot_work_is_refused_by_name(option, tmp_path):
    with pytest.raises(AdapterNotSetUp, match=f"{option} is 0; it must be more than 0"):
        AppWorldEnvironment(tmp_path, python=sys.executable, **{option: 0})


def test_training_tasks_are_never_held_out(tmp_path):
    with pytest.raises(AdapterNotSetUp, match="heldout is 'train'; it must be one of dev, test_normal, test_challenge"):
        AppWorldEnvironment(tmp_path, python=sys.executable, heldout="train")


def test_missing_data_is_named_with_the_command_that_fetches_it(tmp_path):
    with pytest.raises(AdapterNotSetUp, match=r"data is missing .*train\.txt.*; download it"):
        Catalogue(tmp_path, None, "dev", "download it")


def test_types_get_the_form_of_json_schema():
    assert json_schema("list[number]") == {"type": "array", "items": {"type": "number"}}
    assert json_schema("integer | string") == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert json_schema("dict") == {}


def written(root: Path) -> Path:
    """A data directory in AppWorld's format, with an app that does not exist there."""
    person = {"first_name": "A", "last_name": "B", "email": "a@example.com", "phone_number": "1"}
    for number, dataset in enumerate(("train", "dev", "test_normal")):
        task = root / "data" / "tasks" / f"aaa{number}_1"
        (task / "ground_truth").mkdir(parents=True)
        specs = {"instruction": "Do.", "datetime": "2023-01-01T00:00:00", "supervisor": person, "db_version": "0"}
        (task / "specs.json").write_text(json.dumps(specs))
        (task / "ground_truth" / "metadata.json").write_text(json.dumps({"difficulty": number + 1}))
        (root / "data" / "datasets").mkdir(exist_ok=True)
        (root / "data" / "datasets" / f"{dataset}.txt").write_text(f"{task.name}:tag\n")
    size = {"name": "size", "type": "string", "required": True, "description": "How big.", "default": None}
    count = {"name": "count", "type": "integer", "required": False, "description": "", "default": 3}
    parameters = [
        {**size, "constraints": ["value in ['big', 'small']"]},
        {**count, "constraints": ["value >= 1"]},
    ]
    docs = root / "data" / "api_docs" / "standard"
    docs.mkdir(parents=True)
    bake = {"bake": {"description": "Bake bread.", "parameters": parameters}}
    (docs / "bakery.json").write_text(json.dumps(bake))
    ends = {"complete_task": {"description": "End.", "parameters": []}}
    (docs / "supervisor.json").write_text(json.dumps(ends))
    (docs / "shop.json").write_text(json.dumps({"buy": {"description": "Buy.", "parameters": []}}))
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


def test_apps_narrow_the_tools_and_the_one_that_ends_a_task_stays(tmp_path):
    catalogue = Catalogue(written(tmp_path), ["shop"], "dev", "")
    assert sorted(catalogue.tools) == ["shop__buy", "supervisor__complete_task"]
    with pytest.raises(AdapterNotSetUp, match="no app 'garage'; it has bakery, shop, supervisor"):
        Catalogue(tmp_path, ["garage"], "dev", "")


@pytest.mark.parametrize(("heldout", "expected"), [("dev", "aaa1_1"), ("test_normal", "aaa2_1")])
def test_held_out_tasks_come_from_the_data_set_that_was_named_and_no_test_task_is_for_training(
    heldout, expected, tmp_path
):
    catalogue = Catalogue(written(tmp_path), None, heldout, "")
    assert [task.id for task in catalogue.of("train", "EMH")] == ["aaa0_1"]
    assert [task.id for task in catalogue.of("heldout", "EMH")] == [expected]


def test_a_damaged_file_is_named(tmp_path):
    (written(tmp_path) / "data" / "tasks" / "aaa0_1" / "specs.json").write_text("{")
    with pytest.raises(AdapterNotSetUp, match=r"aaa0_1/specs\.json cannot be read: .*; download it"):
        Catalogue(tmp_path, None, "dev", "download it")


def test_a_name_that_could_be_code_is_no_tool(tmp_path):
    doc = {"os); print(1": {"description": "", "parameters": []}}
    (written(tmp_path) / "data" / "api_docs" / "standard" / "shop.json").write_text(json.dumps(doc))
    with pytest.raises(AdapterNotSetUp, match="cannot be the name of a tool"):
        Catalogue(tmp_path, None, "dev", "")


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
    assert pool.deaths == MOST_DEATHS
    now[0] = 61.0
    with pytest.raises(EnvironmentFailed, match="the worker has died"):
        await pool.open("aaa0_1")
