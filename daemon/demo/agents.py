"""The demo's agents: real clients of the tap, several at a time, with their own desk and no idea of evolved.

Each agent is the `openai` package pointed at the tap. It takes a customer's wish, calls the model, runs the tools on
its desk or passes its words on to the customer, and some time after the end tells `/v1/feedback` how it went, naming
the last response. Everything that an agent saw is written to a journal, so that the demo can count against evolved's
own books.

    python -m daemon.demo.agents '{"tap": "http://127.0.0.1:8080", "journal": "agents.jsonl", "seed": 0}'

SIGTERM: the episodes under way are finished, their feedback is sent, and the process ends.
"""

import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx
import msgspec
import openai

from actors.messages import ToolCall
from actors.ports.environments import Environment
from daemon.demo.worlds import WORLDS


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agents' process is told on its command line, as JSON."""

    tap: str
    """Base URL of the tap, without /v1."""
    journal: str
    """File to append to, one JSON object a line."""
    model: str = "desk"
    seed: int = 0
    """Of streaming or not, thinking times and delays."""
    first_task: int = 0
    """Number of the first task; each agent counts up from its own."""
    agents: int = 4
    """How many work at once."""
    think: float = 0.05
    """Seconds between a tool's result and the next call, on average."""
    world: str = "travel"
    """A key of `WORLDS`."""
    families: str = ""
    """Kinds of task; empty: those of the world."""
    drift: str = ""
    """File that says how the desk has drifted; shared with the sandbox."""
    per_minute: float = 0.0
    """Episodes that begin a minute, at random (Poisson), however many are under way; 0: each of `agents` begins its
    next one when the last has ended."""
    feedback: float = 1.0
    """Share of episodes that are reported at all, 0 to 1."""
    feedback_delay: float = 1.0
    """Seconds between the end of an episode and its feedback, on average."""
    follow_ups: bool = False
    """Whether customers come back and say what they think of it, in the same conversation."""
    timeout: float = 120.0


class AgentJournal:
    """What the agents saw, line by line, flushed at once: it must survive whatever happens to the rest."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, event: str, **fields: object) -> None:
        self._out.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\n")
        self._out.flush()


class Agent:
    """One agent: takes a task, works on it with tools, reports the outcome later."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        http: httpx.AsyncClient,
        desk: Environment,
        settings: AgentSettings,
        journal: AgentJournal,
        rng: random.Random,
    ) -> None:
        self._client, self._http, self._desk = client, http, desk
        self._settings, self._journal, self._rng = settings, journal, rng
        self._world = WORLDS[settings.world]

    async def work(self, seed: int, reports: anyio.abc.TaskGroup) -> None:
        """One episode; its feedback is left to `reports`, the agent goes on."""
        task = self._desk.sample(seed, "train", self._settings.families or self._world.families)
        episode = await self._desk.reset(task)
        messages: list[dict[str, Any]] = list(episode.messages)
        last = ""
        for _ in range(self._world.max_steps):
            try:
                answer = await self._ask(messages, episode.tools)
            except openai.OpenAIError as error:
                self._journal.write("failed", error=f"{type(error).__name__}: {error}"[:300])
                return
            last = answer.id
            self._journal.write("response", id=last)
            message = answer.choices[0].message
            calls = [
                # A stream that ends in a call without arguments leaves them None, whatever the type says.
                ToolCall(call.function.name, call.function.arguments or "", call.id)
                for call in message.tool_calls or []
                if call.type == "function"
            ]
            seen = await episode.step(calls, message.content or "")
            messages.append(_assistant(message.content, calls))
            if seen.done:
                messages += [{"role": "tool", "content": seen.text, "tool_call_id": call.id} for call in calls]
                break
            one = {"role": "tool", "content": seen.text, "tool_call_id": calls[0].id if calls else "none"}
            messages += seen.messages or (one,)
            await anyio.sleep(self._rng.uniform(0.5, 1.5) * self._settings.think)
        outcome = await episode.evaluate()
        self._journal.write("episode", response_id=last, outcome=outcome, goal=task.goal)
        if self._rng.random() < self._settings.feedback:
            reports.start_soon(self._report, last, outcome)
        afterwards = self._world.afterwards if self._settings.follow_ups else None
        if afterwards is not None and (said := afterwards(self._rng, episode)):
            await self._answer_to(said, messages, episode.tools)

    async def _answer_to(self, said: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
        """Let the model answer a customer who has come back; nothing comes of what it wants to do."""
        try:
            answer = await self._ask([*messages, {"role": "user", "content": said}], tools)
        except openai.OpenAIError as error:
            self._journal.write("failed", error=f"{type(error).__name__}: {error}"[:300])
            return
        self._journal.write("response", id=answer.id)

    async def _ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
        """The model's answer; every fourth call is streamed, as some of a user's agents will."""
        request: dict[str, Any] = {
            "model": self._settings.model,
            "messages": messages,
            "tools": tools,
            "temperature": 1.0,
            "max_tokens": self._world.max_tokens,
        }
        if self._rng.random() >= 0.25:
            return await self._client.chat.completions.create(**request)
        try:
            async with self._client.chat.completions.stream(**request) as stream:
                return await stream.get_final_completion()
        except openai.LengthFinishReasonError as cut:
            # The helper makes an error of an answer that met its token limit; to an agent it is a bad answer.
            return cut.completion

    async def _report(self, response_id: str, outcome: float) -> None:
        await anyio.sleep(self._rng.uniform(0.5, 1.5) * self._settings.feedback_delay)
        for attempt in range(5):
            try:
                answer = await self._http.post("/v1/feedback", json={"response_id": response_id, "outcome": outcome})
                if answer.status_code < 500:
                    self._journal.write("feedback", response_id=response_id, status=answer.status_code)
                    return
            except httpx.TransportError:
                pass
            await anyio.sleep(0.5 * 2**attempt)
        self._journal.write("feedback_failed", response_id=response_id)


def _assistant(content: str | None, calls: list[ToolCall]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


async def run(settings: AgentSettings, journal: AgentJournal) -> None:
    """Work until SIGTERM, then finish what is under way."""
    stopping = anyio.Event()
    desk = WORLDS[settings.world].environment(Path(settings.drift) if settings.drift else None)
    async with (
        openai.AsyncOpenAI(
            base_url=f"{settings.tap}/v1", api_key="unused", max_retries=0, timeout=settings.timeout
        ) as client,
        httpx.AsyncClient(base_url=settings.tap, timeout=10.0) as http,
        anyio.create_task_group() as reports,
    ):

        async def one(number: int) -> None:
            rng = random.Random(f"{settings.seed}-agent-{number}")
            agent = Agent(client, http, desk, settings, journal, rng)
            count = 0
            while not stopping.is_set():
                await agent.work(settings.first_task + number * 100_000 + count, reports)
                count += 1

        async def arrivals() -> None:
            """Episodes at their own times, each with an agent of its own."""
            rng, count = random.Random(f"{settings.seed}-arrivals"), 0
            while not stopping.is_set():
                await anyio.sleep(rng.expovariate(settings.per_minute / 60.0))
                own = random.Random(f"{settings.seed}-arrival-{count}")
                agent = Agent(client, http, desk, settings, journal, own)
                agents.start_soon(agent.work, settings.first_task + count, reports)
                count += 1

        async def watch(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                task_status.started()
                async for _ in signals:
                    stopping.set()

        async with anyio.create_task_group() as workers:
            await workers.start(watch)
            async with anyio.create_task_group() as agents:
                if settings.per_minute > 0:
                    agents.start_soon(arrivals)
                for number in range(settings.agents if settings.per_minute <= 0 else 0):
                    agents.start_soon(one, number)
            workers.cancel_scope.cancel()
    journal.write("ended")


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=AgentSettings)
    with Path(settings.journal).open("a", encoding="utf-8") as out:
        anyio.run(run, settings, AgentJournal(out), backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()
