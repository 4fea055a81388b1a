"""What bfcl-eval has: its multi-turn tasks, the tools of the eight APIs, and a profile drawn from both.

Asked of the worker script once, in the interpreter that has bfcl-eval. The answer key stays over there.
"""

import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from actors.ports.environments import Profile, Split
from actors.ports.errors import AdapterNotSetUp

NAME = "bfcl"
VERSION = "2026.3.23"
FAMILIES = {
    "B": "multi_turn_base",
    "F": "multi_turn_miss_func",
    "P": "multi_turn_miss_param",
    "L": "multi_turn_long_context",
}
HELD_OUT_OF_256 = 51
"""A fifth of the scenarios is held out."""
MOST_VALUES = 50
"""Of one kind of entity in the profile."""
_JSON_TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string", "bool": "boolean",
}  # fmt: skip
_LOAD_SECONDS = 120


class BfclTask(msgspec.Struct, frozen=True):
    """A task, as far as those who attempt it may know it."""

    id: str
    goal: str
    """The user's first message."""
    turns: int
    apis: tuple[str, ...]
    config: dict[str, Any]
    """How its world begins, by API."""

    @property
    def family(self) -> str:
        """Its category's letter."""
        category = self.id.rpartition("_")[0]
        return next(letter for letter, name in FAMILIES.items() if name == category)

    @property
    def split(self) -> Split:
        """By its number, not its id: the same scenario is in all four categories, and must be on one side only."""
        scenario = self.id.rpartition("_")[2]
        return "heldout" if hashlib.sha256(f"bfcl-{scenario}".encode()).digest()[0] < HELD_OUT_OF_256 else "train"


class _Doc(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class _Answer(msgspec.Struct, frozen=True):
    version: str
    step_limit: int
    apis: dict[str, list[_Doc]]
    tasks: list[BfclTask]


class Catalogue:
    """Tasks by id and tools by name.

    Attributes:
        tasks: in an order that mixes the categories, the same on every machine.
        tools: in OpenAI's form; the 128 names differ.
        step_limit: how many turns the official harness gives the model for each turn of the user.
    """

    def __init__(self, answer: _Answer) -> None:
        self.tasks = {
            task.id: task for task in sorted(answer.tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())
        }
        self.tools = {doc.name: _tool(doc) for docs in answer.apis.values() for doc in docs}
        self.step_limit = answer.step_limit
        self._apis = answer.apis

    def of(self, split: Split, letters: str) -> list[BfclTask]:
        """The tasks of a split in some families."""
        return [task for task in self.tasks.values() if task.split == split and task.family in letters]

    def profile(self) -> Profile:
        """Drawn from the documentation and the initial worlds of the training tasks, with rules that know no API."""
        entities = {name: tuple(values) for name, values in _enumerated(self.tools.values()).items()}
        meets = _Meets(self.tools.values())
        for task in self.tasks.values():
            if task.split == "train":
                for name, value in meets.values(task.config):
                    known = entities.get(name, ())
                    if value not in known and len(known) < MOST_VALUES:
                        entities[name] = (*known, value)
        # Every description says first what its API is, in the same words.
        about = {name: docs[0].description.partition("Tool description")[0] for name, docs in self._apis.items()}
        return Profile(
            name=NAME,
            description="Simulated APIs, one or two of them in a task, and a user who asks for several things in turn.",
            entities=entities,
            notes=(
                *(f"{name}: {sentence.strip()}" for name, sentence in about.items()),
                "A turn without a tool call ends what the user asked for last; the user then says what comes next.",
            ),
        )


def load(command: Sequence[str], env: Mapping[str, str]) -> Catalogue:
    """Ask the worker script; takes a second.

    Raises:
        AdapterNotSetUp: bfcl-eval is not there, or it is another version.
    """
    try:
        found = subprocess.run(
            [*command, "catalogue"], env=dict(env), capture_output=True, timeout=_LOAD_SECONDS, check=False, cwd="/",
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdapterNotSetUp(f"{command[0]} does not run ({error}); `make bfcl` sets it up anew") from error
    if found.returncode:
        last = found.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise AdapterNotSetUp(f"{command[0]} has no working bfcl-eval ({last}); `make bfcl` sets it up anew")
    try:
        answer = msgspec.json.decode(found.stdout, type=_Answer)
    except msgspec.DecodeError as error:
        raise AdapterNotSetUp(f"the catalogue of {command[0]} cannot be read: {error}; see `make bfcl`") from error
    if answer.version != VERSION:
        raise AdapterNotSetUp(f"{command[0]} has bfcl-eval {answer.version}, not {VERSION}; `make bfcl` installs that")
    return Catalogue(answer)


def _tool(doc: _Doc) -> dict[str, Any]:
    function = {"name": doc.name, "description": doc.description, "parameters": json_schema(doc.parameters)}
    return {"type": "function", "function": function}


def json_schema(part: Any) -> Any:
    """JSON Schema from BFCL's, whose types have Python's names."""
    if isinstance(part, list):
        return [json_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {key: json_schema(value) for key, value in part.items()}
    if isinstance(made.get("type"), str):  # else a parameter of that name, with a schema of its own
        made["type"] = _JSON_TYPES.get(made["type"], made["type"])
    return made


def _properties(tools: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for tool in tools:
        yield from tool["function"]["parameters"].get("properties", {}).items()


def _enumerated(tools: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Values that the documentation itself lists."""
    found: dict[str, list[str]] = {}
    for name, schema in _properties(tools):
        for value in schema.get("enum", ()):
            values = found.setdefault(name, [])
            if str(value) not in values:
                values.append(str(value))
    return found


class _Meets:
    """Finds values of the tools' arguments in a world.

    A field of an argument's name has values of it. The rows of a table have, as their keys or their ids, values of the
    argument that is named for the table or for the row's type: "booking_record" and booking_id, "file" and file_name.
    """

    def __init__(self, tools: Iterable[dict[str, Any]]) -> None:
        names = {name for name, schema in _properties(tools) if schema.get("type") in ("string", "integer")}
        self._stems = {name: re.sub(r"_(id|name)$", "", name) for name in sorted(names)}

    def values(self, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(argument name, value), in the order of the configuration."""
        for api in config.values():
            yield from self._walk("", api)

    def _walk(self, key: str, value: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            if all(isinstance(row, dict) for row in value.values()):
                for row, content in value.items():
                    kind = content.get("type")
                    yield from ((name, row) for name in self._named_for(kind if isinstance(kind, str) else key))
            for inner, item in value.items():
                yield from self._walk(inner, item)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict) and isinstance(item.get("id"), str | int):
                    yield from ((name, str(item["id"])) for name in self._named_for(key))
                yield from self._walk(key, item)
        elif key in self._stems and isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            yield key, str(value)

    def _named_for(self, kind: str) -> Iterator[str]:
        words = [word.removesuffix("s") for word in kind.lower().split("_")]
        for name, stem in self._stems.items():
            if len(stem) > 2 and any(word.startswith(stem) for word in words):
                yield name
