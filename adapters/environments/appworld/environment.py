"""AppWorld's tasks behind the environment Protocols: one person's apps, an instruction, AppWorld's own verdict.

AppWorld's pins exclude ours and it freezes the time of its process, so it runs in processes and an interpreter of its
own (`server.py`). Its actions are Python code: tool calls are written as such here (`code.py`), the model writes none.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.appworld.catalogue import COMPLETE, FAMILIES, HELD_OUT, NAME, AppWorldTask, Catalogue
from adapters.environments.appworld.code import rendered
from adapters.environments.appworld.servers import Server, ServerPool

VERSION = "0.1.3.post1"
MOST_CALLS = 20
"""Executed in one turn."""
MOST_TEXT = 100_000
"""Characters of one result."""
_SERVER = Path(__file__).with_name("server.py")
_VERSION_SECONDS = 60
_FAILED = "Execution failed."
_OVER = "The task is over."
_SILENCE = "Nobody reads this. Call the tools; supervisor__complete_task ends the task."
_DIFFICULTY = {1: 0.3, 2: 0.6, 3: 0.85}
"""A first guess, until attempts tell."""


class _Spec(msgspec.Struct, frozen=True):
    """What `Task.spec` holds."""

    id: str


class AppWorldEpisode:
    """One attempt at a task.

    It ends with `supervisor__complete_task`, or after `max_steps` turns; then every step is answered with "over" and
    changes nothing.
    """

    def __init__(
        self,
        server: Server,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        apis: dict[str, tuple[str, str]],
        max_steps: int,
    ) -> None:
        self._server, self._apis, self._left = server, apis, max_steps
        self._done = False
        self._verdict: dict[str, Any] | None = None
        self.messages, self.tools = messages, tools

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """The calls are executed in their order, each is answered by a message of its own."""
        if self._done:
            return Observation(_OVER, True, tuple(_answer(call, _OVER) for call in calls))
        self._left -= 1
        results = [await self._call(number, call) for number, call in enumerate(calls)]
        self._done = self._done or self._left <= 0
        if not calls:
            return Observation(_SILENCE, self._done, ({"role": "user", "content": _SILENCE},))
        messages = tuple(_answer(call, result) for call, result in zip(calls, results, strict=True))
        return Observation("\n".join(results), self._done, messages)

    async def evaluate(self) -> float:
        return float((await self.verdict())["success"])

    async def verdict(self) -> dict[str, Any]:
        """AppWorld's own: `success`, `passed` and `tests`, which also count what passes if nothing is done."""
        if not self._done:
            return {"success": False, "passed": 0, "tests": 0}
        if self._verdict is None:
            found = await self._server.post("evaluate", suppress_errors=True, report=False)
            self._verdict = {
                "success": bool(found["success"]), "passed": len(found["passes"]), "tests": found["num_tests"],
            }  # fmt: skip
        return self._verdict

    async def state(self) -> dict[str, Any]:
        """A digest of each table that has rows, by app: equal if all rows are."""
        return await self._server.state()

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _call(self, number: int, call: ToolCall) -> str:
        if self._done:
            return _OVER
        if number >= MOST_CALLS:
            return f"Error: not executed, more than {MOST_CALLS} calls in one turn"
        api = self._apis.get(call.name)
        if api is None:
            return _shown(f"Error: there is no tool {call.name[:200]!r}")
        try:
            code = rendered(*api, call.arguments)
        except ValueError as error:
            return _shown(f"Error: {error}")
        output: str = await self._server.post("execute", code=code)
        if api == COMPLETE and not output.startswith(_FAILED):
            # Not asked of `task_completed`: it fails on answers that AppWorld takes and cannot show, "999..." as inf.
            self._done = True
        return _shown(_told(output))


class AppWorldEnvironment:
    """AppWorld's tasks: families E, M and H, its difficulties 1, 2 and 3.

    Args:
        root: AppWorld's root directory, which has `data` in it; None for APPWORLD_ROOT, or the working directory.
        python: interpreter of the environment that has AppWorld (`make appworld` makes it).
        apps: whose tools are offered, beside the supervisor's; None for all 457, which no small prompt holds.
        heldout: AppWorld's data set that the held-out tasks come from; training tasks only ever come from `train`.
        max_steps: turns of the model.
        max_instances: attempts open at a time, each of them a process.
        wait_seconds: for which one more waits for room.
        deadline: seconds for one answer; a process that takes longer is killed, and its attempt lost.
        start_seconds: until AppWorld is imported.
        idle_seconds: after which an attempt that nobody touched is given up.
        memory_mb: address space of a process.

    Raises:
        AdapterNotSetUp: there is no such interpreter or data, or an option makes no sense.
    """

    name = NAME

    def __init__(
        self,
        root: Path | str | None = None,
        *,
        python: Path | str = ".venv-appworld/bin/python",
        apps: Sequence[str] | None = None,
        heldout: str = "dev",
        max_steps: int = 50,
        max_instances: int = 8,
        wait_seconds: float = 60.0,
        deadline: float = 60.0,
        start_seconds: float = 180.0,
        idle_seconds: float = 3600.0,
        memory_mb: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not resolved: the link is how an interpreter knows its virtual environment.
        interpreter = Path(python).absolute()
        if not interpreter.is_file():
            raise AdapterNotSetUp(f"there is no {interpreter}: `make appworld` sets it up, or set `python`")
        given = {
            "max_steps": max_steps, "max_instances": max_instances, "wait_seconds": wait_seconds, "deadline": deadline,
            "start_seconds": start_seconds, "idle_seconds": idle_seconds, "memory_mb": memory_mb,
        }  # fmt: skip
        for option, value in given.items():
            if value <= 0:
                raise AdapterNotSetUp(f"{option} is {value}; it must be more than 0")
        if heldout not in HELD_OUT:
            raise AdapterNotSetUp(f"heldout is {heldout!r}; it must be one of {', '.join(HELD_OUT)}")
        _check_version(interpreter)
        place = Path(root or os.environ.get("APPWORLD_ROOT", ".")).absolute()
        remedy = f"`{interpreter.with_name('appworld')} download data --root {place}` fetches it, or set `root`"
        self._catalogue = Catalogue(place, apps, heldout, remedy)
        self._max_steps = max_steps
        command = [str(interpreter), "-I", "-B", str(_SERVER)]
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC", "APPWORLD_SERVER_MEMORY": str(memory_mb << 20)}
        self.pool = ServerPool(
            command, env, place / "data", most=max_instances, wait_seconds=wait_seconds, deadline=deadline,
            start_seconds=start_seconds, idle=idle_seconds, clock=clock,
        )  # fmt: skip

    def profile(self) -> Profile:
        return self._catalogue.profile()

    def tools(self) -> list[dict[str, Any]]:
        """The APIs of the apps that are offered, as `app__api`; the same in every task."""
        return list(self._catalogue.tools.values())

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """The tasks in AppWorld's order, beginning anew when all were given."""
        letters = "".join(sorted(set(families or "".join(FAMILIES))))
        unknown = sorted(set(letters) - set(FAMILIES))
        if unknown:
            raise ValueError(f"AppWorld has no family {unknown[0]!r}; families: {', '.join(FAMILIES)}")
        found = self._catalogue.of(split, letters)
        if not found:
            raise ValueError(f"AppWorld has no {split} task in the families {letters}")
        return _task(found[seed % len(found)])

    def task(self, id: str) -> Task:
        """AppWorld's task `id`.

        Raises:
            EnvironmentFailed: it is neither a training nor a held-out task.
        """
        if id not in self._catalogue.tasks:
            raise EnvironmentFailed(f"AppWorld has no task {id!r} in `train` or the held-out data set")
        return _task(self._catalogue.tasks[id])

    async def reset(self, task: Task) -> AppWorldEpisode:
        try:
            spec = msgspec.convert(task.spec, _Spec)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a task of AppWorld: {error}") from error
        found = self._catalogue.tasks.get(spec.id)
        if task.environment != NAME or found is None:
            raise EnvironmentFailed(f"not a task of AppWorld: {task.environment!r}, {spec.id!r}")
        server = await self.pool.open(
            spec.id,
            experiment_name="evolved",
            # The steps are counted here, and the deadline is kept from outside.
            max_interactions=(self._max_steps + 1) * MOST_CALLS,
            timeout_seconds=None,
        )
        return AppWorldEpisode(server, _opening(found), self.tools(), self._catalogue.apis, self._max_steps)

    async def aclose(self) -> None:
        """End the processes. Without it they end with this process, or when the environment is collected."""
        self.pool.close()


def _check_version(interpreter: Path) -> None:
    asked = "import importlib.metadata; print(importlib.metadata.version('appworld'))"
    try:
        found = subprocess.run(
            [str(interpreter), "-I", "-c", asked], env={"PATH": os.defpath}, capture_output=True, cwd="/",
            timeout=_VERSION_SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdapterNotSetUp(f"{interpreter} does not run ({error}); `make appworld` sets it up anew") from error
    version = found.stdout.decode("utf-8", "replace").strip()
    if version != VERSION:
        raise AdapterNotSetUp(
            f"{interpreter} has {f'AppWorld {version}' if version else 'no AppWorld'}, not {VERSION}; `make appworld` "
            "installs that"
        )


def _opening(task: AppWorldTask) -> list[dict[str, Any]]:
    person = task.supervisor
    system = (
        f"You do tasks for {person.first_name} {person.last_name} ({person.email}, {person.phone_number}) by calling "
        f"the tools, which are the APIs of this person's apps. It is {task.datetime}. Nobody answers questions. When "
        "the task is done call supervisor__complete_task, with the answer if the task asks for one."
    )
    return [{"role": "system", "content": system}, {"role": "user", "content": task.instruction}]


def _task(found: AppWorldTask) -> Task:
    return Task(
        id=derived_id(NAME, found.id),
        goal=found.instruction,
        environment=NAME,
        spec={"id": found.id},
        difficulty=_DIFFICULTY.get(found.difficulty, 0.5),
        origin="heldout" if found.split == "heldout" else "environment",
    )


def _told(output: str) -> str:
    """Of a failed execution what AppWorld says about it, without the trace: the model did not write that code."""
    if not output.startswith(_FAILED):
        return output.strip()
    lines = output.splitlines()[1:]
    told = "\n".join(dropwhile(lambda line: line.startswith(" "), lines)).strip() or _FAILED
    return f"Error: {told.removeprefix('Exception: ')}"


def _shown(text: str) -> str:
    """A result as an agent is shown it: valid UTF-8, of bounded length."""
    if len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + " [cut]"
    return text.encode("utf-8", "replace").decode("utf-8")


def _answer(call: ToolCall, content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call.id}
