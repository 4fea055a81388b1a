"""Small in-memory implementations of the Protocols that the policy loop's actors depend on."""

import json
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import numpy as np

from actors.kinds.holdout import held_out
from actors.messages import (
    Attributed,
    Candidate,
    Exchange,
    Experience,
    Message,
    OutcomeChanged,
    Serving,
    Task,
    ToolCall,
    Trajectory,
    VersionSpan,
    derived_id,
)
from actors.ports.engines import Generation
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import CheckpointRefused, EngineUnavailable, EnvironmentFailed
from actors.ports.store import OutcomeRow, SwapReport
from actors.statistics.parties import newest, party_of
from actors.store.outcomes import revised
from actors.system.actor import Result
from actors.system.errors import DependencyUnavailable

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class FakeStore:
    """State, and lists that tests fill; what actors put into results is saved with `save`."""

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {}
        self.records: dict[str, Message] = {}
        self.is_frozen = False
        self.told: dict[str, float] = {}
        """When outcomes were reported that came late, by run."""
        self.lost: set[tuple[str, str]] = set()
        self.lost_before: set[tuple[str, str]] = set()
        """(engine, run)."""

    def save(self, records: Sequence[Message]) -> None:
        for record in records:
            self.records[f"{type(record).__name__}/{record.id}"] = record

    def _of(self, kind: type, key: str, limit: int) -> list[Any]:
        found = [record for record in self.records.values() if isinstance(record, kind)]
        return sorted(found, key=lambda record: getattr(record, key), reverse=True)[:limit]

    async def state_get(self, key: str) -> bytes | None:
        return self.state.get(key)

    async def state_put(self, key: str, value: bytes) -> None:
        self.state[key] = value

    async def frozen(self) -> bool:
        return self.is_frozen

    async def newest(
        self, kind: type[M], limit: int = 100, *, engine: str | None = None, kinds: Sequence[str] = ()
    ) -> list[M]:
        time = {Candidate: "version", Serving: "since"}.get(kind, "created")
        found = self._of(kind, time, 10_000)
        found = [
            item for item in found if not kinds or {getattr(item, key, "") for key in ("decision", "kind")} & {*kinds}
        ]
        return [item for item in found if engine in (None, getattr(item, "engine", None))][:limit]

    async def head(self) -> Candidate | None:
        moves = [one for one in self._of(Candidate, "created", 10_000) if one.answer in ("trained", "went_back")]
        return max(moves, key=lambda one: (one.created, one.version), default=None)

    async def first_served(self) -> int | None:
        made = [one for one in self._of(Serving, "since", 10_000) if one.result in ("started", "swapped")]
        return made[-1].version if made else None

    async def recent_outcomes(
        self, *, source: str = "production", version: int | None = None, since: float = 0.0, until: float = inf,
        limit: int = 100,
    ) -> list[OutcomeRow]:  # fmt: skip
        runs = [run for run in self._of(Trajectory, "ended", 100_000) if source == run.source]
        if version is not None:
            runs = [run for run in runs if run.outcome is not None and run.min_version == run.max_version == version]
        return [
            OutcomeRow(
                id=run.id, ended=run.ended, outcome=run.outcome, min_version=run.min_version,
                max_version=run.max_version, goal=run.goal, told=self.told.get(run.id), tenant=run.tenant,
                caller=run.caller,
            )
            for run in runs if since <= run.ended < until
        ][:limit]  # fmt: skip

    async def closed_runs(self, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
        return [(run, "") for run in self._of(Trajectory, "ended", 100_000) if run.id in set(ids)]

    async def reported(self, ids: Sequence[str]) -> list[tuple[Attributed | Trajectory, float | None]]:
        found = [run for key in ids if (run := await self.trajectory(key)) is not None]
        runs = [(run, run.trajectory if isinstance(run, Attributed) else run) for run in found]
        told = [(one, self.told.get(run.id), run) for one, run in runs if run.source == "production"]
        return [(one, at) for one, at, run in told if run.outcome is not None]

    def tell(self, run_id: str, outcome: float, at: float) -> OutcomeChanged:
        """The run's outcome is reported."""
        for kind in ("Attributed", "Trajectory"):
            found = self.records.get(f"{kind}/{run_id}")
            if isinstance(found, Attributed | Trajectory):
                self.records[f"{kind}/{run_id}"] = revised(found, outcome, 0)
        self.told[run_id] = at
        return OutcomeChanged(id=run_id, revision=0)

    async def trajectory(self, trajectory_id: str) -> Attributed | Trajectory | None:
        found = self.records.get(f"Attributed/{trajectory_id}") or self.records.get(f"Trajectory/{trajectory_id}")
        return found if isinstance(found, Attributed | Trajectory) else None

    async def lost_runs(self, since: float, limit: int = 1000, *, until: float | None = None) -> set[tuple[str, str]]:
        return self.lost if until is None else self.lost_before

    async def recent_attributed(self, *, source: str | None = None, limit: int = 100) -> list[Attributed]:
        found = [record for record in self.records.values() if isinstance(record, Attributed)]
        found = [record for record in found if source in (None, record.trajectory.source)]
        return sorted(found, key=lambda record: record.trajectory.ended, reverse=True)[:limit]

    async def exam(self, *, reported: bool, limit: int) -> list[Attributed]:
        found = await self.recent_attributed(source="production", limit=100_000)
        chosen = [item for item in found if held_out(item.id) and (item.trajectory.outcome is not None or not reported)]
        parties = [party_of(item.trajectory.tenant, item.trajectory.caller) for item in chosen]
        return [chosen[place] for place in newest(parties, limit, len(chosen))]

    async def exchanges(self, ids: Sequence[str]) -> list[Exchange]:
        return [record for record in self.records.values() if isinstance(record, Exchange) and record.id in ids]


class FakeEngine:
    """An engine whose tokens are characters; how often it does the right thing depends on its version alone.

    Args:
        skill: share of right first calls by version; a lesson in the prompt makes it 1.
    """

    def __init__(self, name: str = "shadow", skill: dict[int, float] | None = None) -> None:
        self.name = name
        self.skill = skill or {}
        self.current = 0
        self.down = False
        self.spans = True
        self.paused = False
        self.requests = 0
        self.chatter = ""
        """What it writes instead of a tool call."""
        self.scores: dict[int, float] = {}
        """Log-prob of every token by version, for `log_probs`."""

    def _check(self) -> None:
        if self.down:
            raise EngineUnavailable("connection refused")

    def _text(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> str:
        parts: list[str] = []
        if messages[0]["role"] != "system":
            parts.append("<system>desk</>")
        for message in messages:
            calls = "".join(
                f"{call['function']['name']}{call['function']['arguments']}" for call in message.get("tool_calls") or []
            )
            parts.append(f"<{message['role']}>{message.get('content') or ''}{calls}</>")
        names = ",".join(tool["function"]["name"] for tool in tools or [])
        return f"[{names}]{''.join(parts)}<assistant>"

    async def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        self._check()
        return [ord(letter) for letter in self._text(messages, tools)]

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check()
        self.requests += 1
        await anyio.lowlevel.checkpoint()
        messages, tools = body["messages"], body["tools"]
        prompt = self._text(messages, tools)
        turns = sum(message["role"] == "assistant" for message in messages)
        rng = random.Random(f"{body.get('seed')}-{turns}")
        right = "LESSON" in prompt or rng.random() < self.skill.get(self.current, 0.5)
        name = "finish" if turns else ("win" if right else "lose")
        if self.chatter:
            message: dict[str, Any] = {"role": "assistant", "content": self.chatter, "tool_calls": None}
            text = self.chatter
        else:
            call = {"id": f"call-{self.requests}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            text = f"{name}{{}}"
        ids = [ord(letter) for letter in f"{text}</>"]
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "finish_reason": "stop" if self.chatter else "tool_calls",
            "token_ids": ids,
            "logprobs": {"content": [{"token": chr(i), "logprob": -0.5} for i in ids]},
        }
        if self.spans:
            choice["weight_versions"] = [{"version": str(self.current), "start": 0, "end": len(ids)}]
        return {
            "id": f"response-{self.requests}",
            "choices": [choice],
            "prompt_token_ids": [ord(letter) for letter in prompt],
        }

    async def generate(self, prompt_ids: Sequence[int], **_: Any) -> Generation:
        self._check()
        span = (VersionSpan(self.current, 0, 1),)
        return Generation(token_ids=[1], logprobs=[-0.5], versions=span, finish_reason="stop")

    async def log_probs(self, ids: Sequence[int]) -> Any:
        self._check()
        values = np.full(len(ids), self.scores.get(self.current, -0.5), dtype=np.float32)
        values[0] = np.nan
        return values

    async def tokenize(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    @staticmethod
    def text(ids: Sequence[int]) -> str:
        """What `tokenize` made of a text, back."""
        return "".join(chr(i) for i in ids)

    async def version(self) -> int:
        self._check()
        return self.current

    async def health(self) -> bool:
        return not self.down

    async def pause(self) -> None:
        self._check()
        self.paused = True

    async def prepare(self, path: Path, *, like: Path | None = None, manifest: str = "", epoch: int = 0) -> None:
        self._check()

    async def load(self, path: Path, *, epoch: int = 0, clean: bool = False) -> None:
        self._check()

    async def label(self, version: int) -> None:
        self.current = version

    async def resume(self) -> None:
        self.paused = False

    async def is_paused(self) -> bool:
        return self.paused


class FakeEpisode:
    """Solved by calling `win` before `finish`."""

    def __init__(self, goal: str, tools: list[dict[str, Any]]) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": goal}]
        self.tools = tools
        self._won = self._done = self.closed = False

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        name = calls[0].name if calls else ""
        self._done = name == "finish"
        self._won = self._won or name == "win"
        known = name in [tool["function"]["name"] for tool in self.tools]
        return Observation(json.dumps({"ok": "yes"} if known else {"error": "no tool"}), self._done)

    async def evaluate(self) -> float:
        return float(self._won and self._done)

    async def aclose(self) -> None:
        self.closed = True


class FakeEnvironment:
    """Endless tasks; `names` are its tools, `broken` task numbers cannot be begun."""

    name = "fake"

    def __init__(self) -> None:
        self.names = ["win", "lose", "finish"]
        self.system = "desk"
        self.broken: set[int] = set()
        self.begun: list[tuple[str, int]] = []
        self.episodes: list[FakeEpisode] = []

    def profile(self) -> Profile:
        return Profile(name=self.name, description="wins or loses", system=self.system)

    def tools(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in self.names]

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        return Task(
            id=derived_id(split, seed), goal=f"task {seed}", environment=self.name, spec={"seed": seed, "split": split}
        )

    async def reset(self, task: Task) -> FakeEpisode:
        if task.spec["seed"] in self.broken:
            raise EnvironmentFailed("broken")
        self.begun.append((task.spec["split"], task.spec["seed"]))
        self.episodes.append(FakeEpisode(task.goal, self.tools()))
        return self.episodes[-1]


class FakeRunner:
    """Swaps by setting the engine's version; `reports` by version say how it goes instead."""

    def __init__(self, *engines: FakeEngine) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self.calls: list[tuple[str, int]] = []
        self.reports: dict[int, SwapReport | Exception] = {}
        self.left: dict[str, SwapReport] = {}

    async def swap(
        self,
        engine: str,
        path: Path,
        version: int,
        *,
        manifest: str = "",
        last_good: Path | None = None,
        last_version: int = -1,
    ) -> SwapReport:
        if self.engines[engine].down:
            raise EngineUnavailable("connection refused")
        if manifest and sha256((path / "manifest.json").read_bytes()).hexdigest() != manifest:
            raise CheckpointRefused(f"{path}: the manifest is not the one that was judged")
        self.calls.append((engine, version))
        report = self.reports.get(version)
        if isinstance(report, Exception):
            raise report
        if report is not None:
            return report
        self.engines[engine].current = version
        return SwapReport(result="swapped", version=version, paused_seconds=0.02, total_seconds=0.05)

    async def collect(self, engine: str) -> SwapReport | None:
        return self.left.pop(engine, None)


class FakeRetriever:
    """Gives the same lessons for every goal."""

    def __init__(self, *lessons: Experience) -> None:
        self.found = lessons

    async def lessons(
        self, goal: str, tenant: str = "default", step: str = "", tools: Collection[str] = ()
    ) -> Sequence[Experience]:
        return self.found


class FakeOutbox:
    """An outbox that keeps what is emitted, and its own lifecycle."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.results: list[Result] = []
        self.draining = anyio.Event()
        self.lifecycle = self

    def beat(self) -> None:
        pass

    async def pause(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self.draining.wait()
            return False
        return True

    async def insist(self, operation: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await operation()
            except DependencyUnavailable:
                await anyio.sleep(1.0)

    async def emit(self, result: Result) -> None:
        self.results.append(result)
        self.store.save(result.records)


class Clock:
    """Time that tests move by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def candidate(version: int, path: Path, *, parent: int | None = None, created: float = 0.0) -> Candidate:
    """A candidate whose directory has a manifest.json on disk."""
    path.mkdir(parents=True, exist_ok=True)
    manifest = msgspec.json.encode({"version": version})
    (path / "manifest.json").write_bytes(manifest)
    return Candidate(
        id=derived_id("candidate", version), version=version, parent=version - 1 if parent is None else parent,
        path=str(path), files=(), manifest=sha256(manifest).hexdigest(), created=created or float(version),
    )  # fmt: skip
