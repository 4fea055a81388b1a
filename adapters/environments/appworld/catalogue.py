"""What AppWorld's data directory has: tasks by split, the apps' APIs as function tools, and a profile of both.

Read as files, in AppWorld's own format (`data/datasets/*.txt`, `data/tasks/*/specs.json`, `data/api_docs/standard`). Of
a task's ground truth nothing is read but its difficulty; what judges an attempt stays in AppWorld's process.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from actors.ports.environments import Profile, Split
from actors.ports.errors import AdapterNotSetUp

T = TypeVar("T")
NAME = "appworld"
FAMILIES = {"E": 1, "M": 2, "H": 3}
"""By AppWorld's difficulty."""
HELD_OUT = ("dev", "test_normal", "test_challenge")
COMPLETE = ("supervisor", "complete_task")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ONE_OF = re.compile(r"value in (\[.*\])")


class AppWorldTask(msgspec.Struct, frozen=True):
    """A task, as far as those who attempt it may know it."""

    id: str
    split: Split
    instruction: str
    supervisor: "Supervisor"
    datetime: str
    """When it is played, in AppWorld's own calendar."""
    difficulty: int

    @property
    def family(self) -> str:
        """Its difficulty's letter."""
        return next((letter for letter, level in FAMILIES.items() if level == self.difficulty), "M")


class Supervisor(msgspec.Struct, frozen=True):
    """Whom the agent works for."""

    first_name: str
    last_name: str
    email: str
    phone_number: str


class _Specs(msgspec.Struct, frozen=True):
    instruction: str
    datetime: str
    supervisor: Supervisor


class _Metadata(msgspec.Struct, frozen=True):
    difficulty: int


class _Parameter(msgspec.Struct, frozen=True):
    name: str
    type: str
    required: bool
    description: str = ""
    default: Any = None
    constraints: tuple[str, ...] = ()


class _Doc(msgspec.Struct, frozen=True):
    description: str
    parameters: tuple[_Parameter, ...]


class Catalogue:
    """Tasks by id and tools by name.

    Args:
        root: has `data` in it.
        apps: whose tools are offered, beside the supervisor's; None for all.
        heldout: AppWorld's data set that the held-out tasks come from.

    Raises:
        AdapterNotSetUp: the data is not there or cannot be read, or has no such app.

    Attributes:
        tasks: in the order of AppWorld's lists.
        tools: in OpenAI's form.
        apis: (app, API) by tool name.
    """

    def __init__(self, root: Path, apps: Sequence[str] | None, heldout: str, remedy: str) -> None:
        self._data, self._remedy = root / "data", remedy
        self.tasks: dict[str, AppWorldTask] = {}
        for split, dataset in (("train", "train"), ("heldout", heldout)):
            for id in self._text(self._data / "datasets" / f"{dataset}.txt").split():
                id = id.partition(":")[0]  # after it AppWorld's lists have tags
                self.tasks[id] = self._task(id, "train" if split == "train" else "heldout")
        docs = self._data / "api_docs" / "standard"
        self._apps = tuple(sorted(path.stem for path in docs.glob("*.json") if path.stem != "admin"))
        unknown = sorted(set(apps or ()) - set(self._apps))
        if unknown:
            raise AdapterNotSetUp(f"apps: AppWorld has no app {unknown[0]!r}; it has {', '.join(self._apps)}")
        shown = self._apps if apps is None else sorted({*apps, COMPLETE[0]})
        self.tools: dict[str, dict[str, Any]] = {}
        self.apis: dict[str, tuple[str, str]] = {}
        for app in shown:
            for api, doc in self._json(docs / f"{app}.json", dict[str, _Doc]).items():
                name = f"{app}__{api}"
                if not (app.isidentifier() and api.isidentifier() and _TOOL_NAME.fullmatch(name)):
                    raise AdapterNotSetUp(f"{docs}: {app}.{api} cannot be the name of a tool; {remedy}")
                self.tools[name] = _tool(name, doc)
                self.apis[name] = (app, api)
        if COMPLETE not in self.apis.values():
            raise AdapterNotSetUp(f"{docs} has no {'.'.join(COMPLETE)}: not AppWorld's data; {remedy}")

    def of(self, split: Split, letters: str) -> list[AppWorldTask]:
        """The tasks of a split in some families."""
        return [task for task in self.tasks.values() if task.split == split and task.family in letters]

    def profile(self) -> Profile:
        entities: dict[str, tuple[str, ...]] = {"app_name": self._apps}
        for tool in self.tools.values():
            for name, schema in tool["function"]["parameters"]["properties"].items():
                values = (*entities.get(name, ()), *(str(value) for value in schema.get("enum", ())))
                if values:
                    entities[name] = tuple(dict.fromkeys(values))
        return Profile(
            always=("__".join(COMPLETE),),
            name=NAME,
            description="Apps of daily life (mail, music, payments, files, notes, shopping), used for one person.",
            entities=entities,
            notes=(
                "Most APIs need an access token: `app__login` gives one for the password that "
                "`supervisor__show_account_passwords` shows.",
                "`api_docs__show_api_doc` tells what an API answers.",
                "`supervisor__complete_task` ends the task, with the answer if one is asked for.",
            ),
        )

    def _task(self, id: str, split: Split) -> AppWorldTask:
        directory = self._data / "tasks" / id
        specs = self._json(directory / "specs.json", _Specs)
        level = self._json(directory / "ground_truth" / "metadata.json", _Metadata).difficulty
        return AppWorldTask(id, split, specs.instruction, specs.supervisor, specs.datetime, level)

    def _text(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterNotSetUp(f"AppWorld's data is missing ({error}); {self._remedy}") from error

    def _json(self, path: Path, type: type[T]) -> T:
        try:
            return msgspec.json.decode(self._text(path), type=type)
        except msgspec.DecodeError as error:
            raise AdapterNotSetUp(f"{path} cannot be read: {error}; {self._remedy}") from error


def _tool(name: str, doc: _Doc) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: _schema(parameter) for parameter in doc.parameters},
        "required": [parameter.name for parameter in doc.parameters if parameter.required],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": doc.description, "parameters": parameters},
    }


def _schema(parameter: _Parameter) -> dict[str, Any]:
    schema = json_schema(parameter.type)
    rules = list(parameter.constraints)
    for rule in parameter.constraints:
        if found := _ONE_OF.fullmatch(rule):
            try:
                schema["enum"] = ast.literal_eval(found[1])
            except (ValueError, SyntaxError):
                continue
            rules.remove(rule)
    if parameter.default is not None:
        schema["default"] = parameter.default
    schema["description"] = "; ".join(_sentences(parameter.description, rules))
    return schema


def _sentences(description: str, rules: Sequence[str]) -> Iterator[str]:
    if description:
        yield description.removesuffix(".")
    yield from rules


def json_schema(written: str) -> dict[str, Any]:
    """JSON Schema of a type as AppWorld's documentation writes it: "string", "list[number]", "integer | string"."""
    if " | " in written:
        return {"anyOf": [json_schema(part) for part in written.split(" | ")]}
    if written.startswith("list[") and written.endswith("]"):
        return {"type": "array", "items": json_schema(written[5:-1])}
    return {"type": written} if written in ("string", "integer", "number", "boolean", "null") else {}
