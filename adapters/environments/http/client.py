"""`HttpEnvironment`: an environment that a service elsewhere serves: ours fully, AgentEvolver's as far as it goes."""

import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import anyio

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Profile, Split
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.chat.keys import checked_url, read_key
from adapters.environments.http.shapes import Info, ServiceRequest, ServiceState, said, written
from adapters.environments.http.wire import Wire, decoded
from adapters.environments.remote import Opening, RemoteEpisode, Stepped, remote_episode

Contract = Literal["evolved", "agentevolver"]
_THEIR_SPLITS: Mapping[Split, str] = {"train": "train", "heldout": "dev"}


class HttpEnvironment:
    """An environment behind HTTP.

    `sample`, `profile` and `tools` wait for the service in the caller's thread; have it near.

    Against AgentEvolver's own service (`contract = "agentevolver"`): tasks are those of its split, in their order, and
    without families; there are no tools but what its opening message tells, an episode shows no state, and the calls of
    a turn are written into its text as well.

    Args:
        url: base address of the service.
        environment: which of its environments.
        contract: whose service it is.
        key_file: file that holds the service's key; `key_env`: environment variable; neither: it wants none.
        timeout: seconds for a request.
        attempts: times that an episode is begun or evaluated anew if the service fails; a step is never taken twice.

    Raises:
        AdapterNotSetUp: an option makes no sense, or the key is not there.
    """

    def __init__(
        self, url: str, environment: str, *, contract: Contract = "evolved", key_file: str = "", key_env: str = "",
        timeout: float = 60.0, attempts: int = 3,
    ) -> None:  # fmt: skip
        try:
            checked_url(url)
        except ValueError as error:
            raise AdapterNotSetUp(str(error)) from None
        if not environment or contract not in ("evolved", "agentevolver"):
            raise AdapterNotSetUp('environment must be named, and contract be "evolved" or "agentevolver"')
        if not 0 < timeout < math.inf or not 1 <= attempts <= 10:
            raise AdapterNotSetUp("timeout must be above 0 seconds and attempts from 1 to 10")
        self.name, self._theirs = environment, contract == "agentevolver"
        self._wire = Wire(url, key=read_key(key_env, key_file), timeout=timeout, attempts=attempts)
        self._profile: Profile | None = None
        self._ids: dict[Split, list[str]] = {}

    def profile(self) -> Profile:
        if self._profile is None:
            if self._theirs:
                self._profile = Profile(name=self.name, description=f"{self.name}, served by AgentEvolver")
            else:
                answer = self._ask("get_env_profile", {"split": "train", "n": 0})
                self._profile = decoded(answer.profile, Profile)
        return self._profile

    def tools(self) -> list[dict[str, Any]]:
        return [] if self._theirs else decoded(self._ask("get_tools", {}).data, list[dict[str, Any]])

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        if not self._theirs:
            answer = self._ask("sample", {"seed": seed, "split": split, "families": families})
            return decoded(answer.data, Task)
        if families is not None:
            raise ValueError(f"AgentEvolver's service knows no families of tasks, {families!r} was asked for")
        key = self._task_ids(split)[seed % len(self._task_ids(split))]
        return Task(
            id=derived_id(self.name, key),
            goal=f"{self.name} {key}",
            environment=self.name,
            spec={"task_id": key},
            origin="heldout" if split == "heldout" else "environment",
        )

    async def reset(self, task: Task) -> RemoteEpisode:
        """See `Environment.reset`; the service makes one instance however often it has to be asked."""
        key = uuid.uuid4().hex
        params: dict[str, Any] = {} if self._theirs else {"task": task}
        if task.environment != self.name or (self._theirs and not isinstance(task.spec.get("task_id"), str)):
            raise EnvironmentFailed(f"not a task of {self.name}: {task.environment!r}")
        wanted = task.spec["task_id"] if self._theirs else task.id
        link = _Instance(self._wire, self.name, key, theirs=self._theirs)
        try:
            answer = await link.call("create", task_id=wanted, params=params, again=True)
            return remote_episode(link, _opening(decoded(answer.data, ServiceState)))
        except BaseException:
            await link.aclose()  # it may have been made, and the answer lost
            raise

    async def aclose(self) -> None:
        await self._wire.aclose()

    def _ask(self, route: str, params: dict[str, Any]) -> Any:
        return self._wire.ask(route, ServiceRequest(env_type=self.name, messages={}, params=params))

    def _task_ids(self, split: Split) -> list[str]:
        if not self._ids.get(split):
            answer = self._ask("get_env_profile", {"split": _THEIR_SPLITS[split]})
            found = decoded(answer.data, list[str])
            if not found:
                raise EnvironmentFailed(f"{self.name} has no tasks in its split {_THEIR_SPLITS[split]!r}")
            self._ids[split] = found
        return self._ids[split]


class _Instance:
    """The link to one instance of the service."""

    def __init__(self, wire: Wire, environment: str, key: str, *, theirs: bool) -> None:
        self._wire, self._environment, self._key, self._theirs = wire, environment, key, theirs
        self._over = self._closed = False

    async def step(self, calls: Sequence[ToolCall], text: str) -> Stepped:
        message = (written if self._theirs else said)(calls, text)
        params: dict[str, Any] = {} if self._theirs else {"reward": False}
        found = decoded((await self.call("step", messages=message, params=params)).data, ServiceState)
        info = found.info or Info()
        told = found.state if self._theirs or info.messages else []
        text = info.text if info.text is not None else "\n".join(str(one.get("content") or "") for one in found.state)
        self._over = found.is_terminated
        return Stepped(text=text, done=found.is_terminated, messages=tuple(told), tools=info.tools)

    async def evaluate(self) -> float:
        if self._theirs and not self._over:
            return 0.0  # its environments judge at any time
        answer = await self.call("evaluate", params={"sparse": True} if self._theirs else {}, again=True)
        return min(1.0, max(0.0, decoded(answer.data, float)))

    async def state(self) -> dict[str, Any]:
        return decoded((await self.call("get_state")).data, dict[str, Any])

    async def aclose(self) -> None:
        """Release the instance; if the service does not answer, it reaps it in time."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(5.0):
            try:
                await self.call("release", closing=True)
            except EnvironmentFailed:
                return

    async def call(
        self, route: str, *, task_id: str | None = None, messages: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None, again: bool = False, closing: bool = False,
    ) -> Any:  # fmt: skip
        if self._closed and not closing:
            raise EnvironmentFailed("the episode was closed")
        request = ServiceRequest(
            env_type=self._environment, task_id=task_id, instance_id=self._key, messages=messages or {},
            params=params or {},
        )  # fmt: skip
        try:
            return await self._wire.call(route, request, again=again)
        except ValueError as error:
            raise EnvironmentFailed(str(error)) from error


def _opening(found: ServiceState) -> Opening:
    info = found.info or Info()
    return Opening(messages=found.state, tools=info.tools or [], stateful=info.stateful)
