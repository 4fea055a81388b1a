"""Holds BFCL's simulated worlds, in a process and an interpreter of its own: nothing of ours can be imported there.

    python -I worker.py catalogue       what there is, as one JSON object
    python -I worker.py serve           requests on stdin, answers on stdout, one JSON object a line

bfcl-eval's own driver evaluates the model's text with `eval`, in the process that asks, and keeps its instances in
module globals by model name, where a second run finds the worlds of the first. Here a call is dispatched by name with
JSON arguments, an attempt has instances of its own, and only the official checkers judge
(`bfcl_eval/eval_checker/multi_turn_eval/multi_turn_checker.py`).
"""

import ast
import copy
import decimal
import importlib
import importlib.metadata
import inspect
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
CALL_CPU_SECONDS = 2
"""A call that computes longer is stopped between two bytecodes."""
WORKER_CPU_SECONDS = 60
"""One that cannot be stopped so, since it never leaves C, ends the worker, also when nobody is left to kill it."""
MOST_EXPONENT_BITS = 1 << 24
"""Integers longer than this cannot be printed anyhow (Python's limit is 4,300 digits), computing them takes minutes."""
MOST_PRECISION = 100_000
MOST_TEXT = 1 << 20
"""Characters of one result that an agent is shown."""


class _TooLong(BaseException):
    """Not an `Exception`: the simulated APIs catch those."""


class Refused(Exception):
    """A request that cannot be served; the worker goes on."""


def main(argv: list[str]) -> int:
    package = Path(str(importlib.import_module("importlib.resources").files("bfcl_eval")))
    tasks = Tasks(package / "data")
    if argv == ["catalogue"]:
        json.dump(tasks.catalogue(), sys.stdout)
        return 0
    # What the simulated APIs might print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    _limit(int(os.environ["BFCL_WORKER_MEMORY"]))
    signal.signal(signal.SIGVTALRM, _stop)
    worlds = Worlds(tasks)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer["value"] = worlds.serve(request)
        except Refused as error:
            answer["refused"] = str(error)
        except Exception as error:
            answer["failed"] = f"{type(error).__name__}: {error}"[:2000]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


class Tasks:
    """The benchmark's files."""

    def __init__(self, data: Path) -> None:
        config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        files: dict[str, str] = config.MULTI_TURN_FUNC_DOC_FILE_MAPPING
        self.entries: dict[str, dict[str, Any]] = {}
        for category in CATEGORIES:
            file = f"BFCL_v4_{category}.json"
            truths = {row["id"]: row["ground_truth"] for row in _rows(data / "possible_answer" / file)}
            for row in _rows(data / file):
                self.entries[row["id"]] = row | {"ground_truth": truths[row["id"]]}
        self.docs = {
            name: _rows(data / "multi_turn_func_doc" / files[name])
            for name in sorted({name for entry in self.entries.values() for name in entry["involved_classes"]})
        }

    def held_back(self, entry: dict[str, Any]) -> dict[int, list[str]]:
        return {int(turn): names for turn, names in entry.get("missed_function", {}).items()}

    def tools(self, entry: dict[str, Any]) -> list[str]:
        """Names at the start, in the official order. The harness does nothing about the data's `excluded_function`."""
        held = {name for names in self.held_back(entry).values() for name in names}
        names = [doc["name"] for name in entry["involved_classes"] for doc in self.docs[name]]
        return [name for name in names if name not in held]

    def catalogue(self) -> dict[str, Any]:
        """Tasks, documentation, and the worlds' initial configurations."""
        prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
        return {
            "version": importlib.metadata.version("bfcl-eval"),
            "step_limit": prompts.MAXIMUM_STEP_LIMIT,
            "apis": self.docs,
            "tasks": [
                {
                    "id": entry["id"],
                    "goal": entry["question"][0][-1]["content"],
                    "turns": len(entry["question"]),
                    "apis": entry["involved_classes"],
                    "config": entry["initial_config"],
                }
                for entry in self.entries.values()
            ],
        }


class World:
    """One attempt at one task: the agent's instances, and those that the ground truth is replayed on beside them.

    Args:
        limit: executed turns of the model within one turn of the user; one more ends the attempt.
        irrelevance: also hold against it what it calls where nothing should be called.
    """

    def __init__(self, tasks: Tasks, entry: dict[str, Any], limit: int, irrelevance: bool) -> None:
        self._entry, self._limit, self._irrelevance = entry, limit, irrelevance
        self._held = tasks.held_back(entry)
        self._tools = tasks.tools(entry)
        self._instances = _instances(entry)
        self._methods = _methods(self._instances)
        self._truth: dict[str, Any] | None = None
        self._responses: list[str] = []
        self._executed: list[list[str]] = []  # names, by turn of the model, in this turn of the user
        self._answered = 0
        self._turn = 0
        self._failure = ""
        self._done = False

    def opening(self) -> dict[str, Any]:
        """What the agent is told first."""
        return {"messages": self._entry["question"][0], "tools": self._tools}

    def call(self, calls: list[tuple[str, str]]) -> dict[str, Any]:
        """Execute one turn of the model: one result for each (name, JSON text)."""
        results, executed = [], []
        for name, text in calls:
            try:
                arguments = json.loads(text)
            except (ValueError, RecursionError) as error:
                results.append(f"Error: the arguments of {name!r} are not JSON: {error}")
                continue
            if not isinstance(arguments, dict):
                results.append(f"Error: the arguments of {name!r} are not a JSON object")
                continue
            results.append(_call(self._methods, name, [], arguments))
            executed.append(name)
            self._responses.append(results[-1])
        if executed:
            self._executed.append(executed)
        self._answered += 1
        if self._answered > self._limit:  # as the harness counts: the turn after the limit is still executed
            self._force_quit()
        return {"results": [_shown(text) for text in results], "done": self._done}

    def next(self) -> dict[str, Any]:
        """The model has nothing more to call: check the turn, and hear what the user says next."""
        self._check()
        self._turn += 1
        self._executed, self._answered = [], 0
        self._done = self._turn >= len(self._entry["question"])
        if self._done:
            return {"messages": [], "tools": [], "done": True}
        added = self._held.get(self._turn, [])
        messages = self._entry["question"][self._turn]
        if added:
            prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
            messages = [{"role": "user", "content": prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC}]
        return {"messages": messages, "tools": added, "done": False}

    def outcome(self) -> dict[str, Any]:
        """The verdict so far."""
        passed = self._done and not self._failure
        return {"outcome": float(passed), "failure": self._failure if self._done else "not over", "turn": self._turn}

    def state(self) -> dict[str, Any]:
        return {name: _plain(instance, ()) for name, instance in self._instances.items()}

    def _force_quit(self) -> None:
        """As the harness has it: turns that were never reached fail the attempt, the last one is still judged."""
        self._check()
        self._turn += 1
        self._done = True
        if self._turn < len(self._entry["question"]):
            self._failure = "multi_turn:force_terminated"

    def _check(self) -> None:
        """What `multi_turn_checker` does after each turn; its verdict is that of the first turn that fails."""
        if self._failure:
            return
        truth: list[str] = self._entry["ground_truth"][self._turn]
        if self._truth is None:
            self._truth = _instances(self._entry)
        methods = _methods(self._truth)
        expected = [_call(methods, *_parsed(text)) for text in truth]
        if truth and not self._executed:
            self._failure = "multi_turn:empty_turn_model_response"
            return
        checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
        if not truth:
            if self._irrelevance:
                self._judge(checker.multi_turn_irrelevance_checker([self._executed], [truth]))
            return
        try:
            self._judge(checker.state_checker(self._instances, self._truth))
        except RecursionError:  # a world that contains itself; the official run would end here
            self._failure = "endless state"
        if not self._failure:
            self._judge(checker.response_checker(self._responses, expected, self._turn))

    def _judge(self, verdict: dict[str, Any]) -> None:
        if not verdict["valid"]:
            self._failure = verdict["error_type"]


class Worlds:
    """Worlds by number."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._worlds: dict[int, World] = {}
        self._last = 0

    def serve(self, request: dict[str, Any]) -> Any:
        """Answer one request.

        Raises:
            Refused: there is no such task, world or operation.
        """
        soft = int(time.process_time()) + WORKER_CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
        operation = request["op"]
        if operation == "open":
            entry = self._tasks.entries.get(request["task"])
            if entry is None:
                raise Refused(f"BFCL has no multi-turn task {request['task']!r}")
            world = World(self._tasks, entry, request["limit"], request["irrelevance"])
            return {"world": self._keep(world), **world.opening()}
        if operation == "close":
            return self._worlds.pop(request["world"], None) is not None
        world = self._worlds.get(request["world"])
        if world is None:
            raise Refused(f"there is no world {request['world']}")
        if operation == "call":
            return world.call(request["calls"])
        served = {"next": world.next, "outcome": world.outcome, "state": world.state}.get(operation)
        if served is None:
            raise Refused(f"there is no operation {operation!r}")
        return served()

    def _keep(self, world: World) -> int:
        self._last += 1
        self._worlds[self._last] = world
        return self._last


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _instances(entry: dict[str, Any]) -> dict[str, Any]:
    """Fresh instances, set up as `execute_multi_turn_func_call` does."""
    config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
    made = {}
    for name in entry["involved_classes"]:
        made[name] = getattr(importlib.import_module(config.CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in config.STATELESS_CLASSES:
            scenario = copy.deepcopy(entry["initial_config"].get(name, {}))
            made[name]._load_scenario(scenario, long_context="long_context" in entry["id"])
    return made


def _methods(instances: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for instance in instances.values()
        for name, method in inspect.getmembers(instance, inspect.ismethod)
        if not name.startswith("_")
    }


def _call(methods: dict[str, Callable[..., Any]], name: str, positional: list[Any], named: dict[str, Any]) -> str:
    """The result as the harness words it; a mistake is a result too."""
    if name not in methods:
        return f"Error during execution: name '{name}' is not defined"
    if _is_endless(name, named):
        return "Error during execution: the numbers are too large to compute with"
    decimal.setcontext(decimal.Context())  # its precision is process-wide, and `square_root` sets it
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CALL_CPU_SECONDS)
        try:
            result = methods[name](*positional, **named)
            if isinstance(result, dict):
                try:
                    return json.dumps(result)
                except Exception:
                    return str(result)
            return str(result)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        return f"Error during execution: stopped after {CALL_CPU_SECONDS} seconds of computing"
    except Exception as error:
        return f"Error during execution: {error}"


def _is_endless(name: str, named: dict[str, Any]) -> bool:
    """The computations that would not come back from C for minutes, or for ever, and take all other worlds along."""
    precision = named.get("precision")
    if name in ("logarithm", "square_root") and isinstance(precision, int) and precision > MOST_PRECISION:
        return True
    base, exponent = named.get("base"), named.get("exponent")
    if name != "power" or not isinstance(base, int) or not isinstance(exponent, int):
        return False
    return exponent * base.bit_length() > MOST_EXPONENT_BITS


def _parsed(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """A call of the ground truth: a name and literals, nothing that could be evaluated."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"not a plain call: {text!r}")
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    return node.func.id, [ast.literal_eval(argument) for argument in node.args], named


def _shown(text: str) -> str:
    """A result as an agent is shown it: valid UTF-8, of bounded length."""
    if len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + " [cut]"
    return text.encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """JSON-able; of objects the public attributes, as the official state check sees them; back references left out."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in above:
        return None
    above = (*above, id(value))
    if isinstance(value, dict):
        return {str(key): _plain(item, above) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, above) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, above) for item in value), key=repr)
    if not hasattr(value, "__dict__"):
        return str(value)
    public = {key: item for key, item in vars(value).items() if not key.startswith("_")}
    return {key: _plain(item, above) for key, item in public.items() if id(item) not in above}


def _limit(memory: int) -> None:
    """No more memory than this, no core dumps, no files written."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _stop(number: int, frame: Any) -> None:
    raise _TooLong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
