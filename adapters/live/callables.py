"""Python functions as a live API: parameters from annotations, descriptions from docstrings.

    def lookup(order: int, *, verbose: bool = False) -> Order:
        '''Find an order.

        Args:
            order: its number.
        '''

    CallablesApi("shop", {"lookup": lookup})

Arguments are checked and converted to what the annotations say; an `async` function runs in the caller's loop (the
daemon's is trio: write it to anyio), another one in a worker thread. Functions run with all that this process may do:
they come from code and configuration, never over the network.
"""

import importlib
import inspect
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiUnavailable, LiveToolUnknown
from adapters.live import CallResult, Operation
from adapters.live.names import tool_names
from adapters.live.schemas import parameters, without_references

_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ANY_SECTION = re.compile(r"^[A-Z][A-Za-z ]*:\s*$")
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_ERROR = 2000
"""Characters of an exception that an agent is told."""


class CallablesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Functions by name: `[apis.NAME]` with `kind = "callables"`."""

    functions: tuple[str, ...]
    """Each as `module:function`, or `module:object.method`."""
    reads: tuple[str, ...] = ()
    """Patterns of names of functions that claim to change nothing."""
    timeout: float = 60.0
    """Seconds for a call."""
    threads: int = 8
    """Functions that are not async and run at a time; one that hangs keeps its thread."""

    def __post_init__(self) -> None:
        if not self.functions:
            raise ValueError("functions: name at least one, as module:function")
        if not (self.timeout > 0 and self.threads > 0):
            raise ValueError("timeout and threads must be more than 0")


class _Function(NamedTuple):
    operation: Operation
    call: Callable[..., Any]
    arguments: type[msgspec.Struct]
    positional: tuple[str, ...]


class CallablesApi:
    """A `LiveApi` of functions."""

    def __init__(
        self,
        name: str,
        functions: Mapping[str, Callable[..., Any]],
        *,
        reads: Collection[str] = (),
        timeout: float = 60.0,
        threads: int = 8,
    ) -> None:
        """
        Args:
            functions: by the name that they are known by.
            reads, timeout, threads: as in `CallablesSettings`.

        Raises:
            AdapterNotSetUp: a function whose parameters cannot be described, with its name and why.
        """
        self.name = name
        self._timeout = timeout
        self._threads = anyio.CapacityLimiter(threads)
        names = tool_names(functions)
        self._functions = {
            names[original]: _described(names[original], original, function, reads)
            for original, function in functions.items()
        }

    @classmethod
    def from_settings(cls, name: str, settings: CallablesSettings) -> "CallablesApi":
        """
        Raises:
            AdapterNotSetUp: a function that is not there, or cannot be described.
        """
        functions = {path.rpartition(":")[2].rpartition(".")[2]: loaded(path) for path in settings.functions}
        if len(functions) < len(settings.functions):
            # Alike in their last part: their whole paths tell them apart.
            functions = {path: loaded(path) for path in settings.functions}
        return cls(name, functions, reads=settings.reads, timeout=settings.timeout, threads=settings.threads)

    async def tools(self) -> Sequence[Operation]:
        return [function.operation for function in self._functions.values()]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call the function; what it raises is an answer, with the exception's type and words."""
        function = self._functions.get(tool)
        if function is None:
            raise LiveToolUnknown(f"{self.name}: no function {tool!r}; there are {', '.join(self._functions)}")
        try:
            given = msgspec.convert(dict(arguments), function.arguments)
        except msgspec.ValidationError as error:
            return CallResult(text=f"arguments: {error}", error=True)
        values = {
            field.name: value
            for field in msgspec.structs.fields(given)
            if (value := getattr(given, field.name)) is not msgspec.UNSET
        }
        positional = [values.pop(name) for name in function.positional if name in values]
        bound = partial(function.call, *positional, **values)
        with anyio.move_on_after(self._timeout):
            try:
                if inspect.iscoroutinefunction(function.call):
                    returned = await bound()
                else:
                    returned = await anyio.to_thread.run_sync(bound, abandon_on_cancel=True, limiter=self._threads)
            except Exception as error:  # the function's own: an answer
                return CallResult(text=f"{type(error).__name__}: {error}"[:_ERROR], error=True)
            return self._answer(tool, returned)
        raise LiveApiUnavailable(f"{self.name}: {tool} did not return within {self._timeout:g} s")

    def read_only(self, tool: str) -> bool:
        return tool in self._functions and self._functions[tool].operation.claims_read_only

    async def aclose(self) -> None:
        """Nothing to close."""

    def _answer(self, tool: str, returned: Any) -> CallResult:
        if returned is None:
            return CallResult(text="done")
        if isinstance(returned, str):
            return CallResult(text=returned)
        try:
            text = msgspec.json.encode(returned).decode()
        except (TypeError, ValueError, UnicodeError, RecursionError) as error:
            raise LiveApiMalformed(f"{self.name}: {tool} returned a {type(returned).__name__}: {error}") from error
        return CallResult(text=text, structured=msgspec.json.decode(text))


def loaded(path: str) -> Callable[..., Any]:
    """The function at `module:function`.

    Raises:
        AdapterNotSetUp: there is none.
    """
    module, colon, attribute = path.partition(":")
    try:
        if not colon:
            raise ValueError("write module:function")
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise AdapterNotSetUp(f"functions: {path!r}: {error}") from error
    if not callable(found):
        raise AdapterNotSetUp(f"functions: {path!r} is no function")
    return found


def _described(name: str, original: str, function: Callable[..., Any], reads: Collection[str]) -> _Function:
    text, about = _documented(inspect.getdoc(function) or "")
    try:
        signature = inspect.signature(function)
        target = function if inspect.isroutine(function) else type(function).__call__
        hints = typing.get_type_hints(target, include_extras=True)
        fields = [
            _field(parameter, hints.get(parameter.name, Any), about.get(parameter.name, ""))
            for parameter in signature.parameters.values()
        ]
        arguments = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        schema = without_references(_resolved(msgspec.json.schema(arguments)))
    except (TypeError, ValueError, NameError) as error:
        raise AdapterNotSetUp(f"function {original!r} cannot be described: {error}; annotate its parameters") from error
    kept = {key: value for key, value in parameters(schema).items() if key != "title"}
    operation = Operation(
        name=name,
        title="" if name == original else original,
        description=text,
        parameters=kept,
        returns=_returned(hints.get("return")),
        claims_read_only=any(fnmatchcase(one, pattern) for one in (name, original) for pattern in reads),
    )
    positional = tuple(p.name for p in signature.parameters.values() if p.kind is inspect.Parameter.POSITIONAL_ONLY)
    return _Function(operation, function, arguments, positional)


def _field(parameter: inspect.Parameter, kind: Any, text: str) -> Any:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise ValueError(f"{parameter} takes any number of arguments")
    more: dict[str, Any] = {}
    has_default = parameter.default is not inspect.Parameter.empty
    if has_default and _is_json(parameter.default):
        more["default"] = msgspec.to_builtins(parameter.default)
    described = Annotated[kind, msgspec.Meta(description=text or None, extra_json_schema=more or None)]
    if not has_default:
        return parameter.name, described
    # Left out, the function's own default stands: it need not be JSON, and is made anew by whoever made it.
    return parameter.name, described | msgspec.UnsetType, msgspec.UNSET


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    return not (isinstance(value, float) and not math.isfinite(value))


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """msgspec puts the type itself among the definitions; the definitions stay, for those inside."""
    found = schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return {**found, "$defs": schema.get("$defs", {})}


def _returned(kind: Any) -> dict[str, Any] | None:
    """The schema of what a function returns, where that is an object; None where it cannot be told."""
    try:
        schema = without_references(_resolved(msgspec.json.schema(kind)))
    except (TypeError, ValueError, KeyError):
        return None
    return schema if schema.get("type") == "object" else None


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """The description of a docstring up to its first section, and what its section `Args` says of each."""
    lines = text.splitlines()
    head = next((number for number, line in enumerate(lines) if _ANY_SECTION.match(line)), len(lines))
    start = next((number for number, line in enumerate(lines) if _SECTION.match(line)), None)
    return "\n".join(lines[:head]).strip(), _arguments(lines[start + 1 :]) if start is not None else {}


def _arguments(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    current, indent = "", 0
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        match = _ARGUMENT.match(line)
        if match and (not current or len(match[1]) <= indent):
            current, indent = match[2], len(match[1])
            found[current] = match[3].strip()
        elif current and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
