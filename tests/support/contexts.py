"""Long episodes for context templates: an environment that goes on for ever, policies that babble, and a look at which
ids the learner is given for what was sampled."""

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from actors.messages import (
    Attributed,
    Attribution,
    BatchItem,
    StepLabel,
    ToolCall,
    Trajectory,
    floats_array,
    ids_array,
    steps_array,
)
from actors.ports.engines import Engine
from actors.ports.environments import Observation
from actors.rollout.context import ContextTemplate, append_user
from actors.rollout.episode_runner import Played
from adapters.engines.embedded.prompts import Prompts
from learner.build import BuildSettings, build
from learner.credit import CreditSettings, assign
from learner.trainers.micro import Layout
from tests.support.fakes import FakeEngine


class LongEpisode:
    """Never over; every tenth answer comes from the user."""

    def __init__(self, seed: int) -> None:
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You are a desk."},
            {"role": "user", "content": "find the way"},
        ]
        self.tools = [{"type": "function", "function": {"name": "search", "parameters": {"properties": {"to": {}}}}}]
        self._rng = random.Random(seed)
        self.made: list[tuple[ToolCall, ...]] = []

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        self.made.append(tuple(calls))
        found = " ".join(f"f{self._rng.randrange(10**4)}" for _ in range(self._rng.randrange(2, 14)))
        if len(self.made) % 10:
            return Observation(json.dumps({"found": found}), False)
        wish = {"role": "user", "content": f"wish {len(self.made) // 10}: not {found}"}
        back = {"role": "tool", "content": "none", "tool_call_id": calls[0].id if calls else "none"}
        return Observation(wish["content"], False, (back, wish))

    async def evaluate(self) -> float:
        return 1.0

    async def aclose(self) -> None:
        pass


class Babble(FakeEngine):
    """Says what it is told to, turn by turn, over and over: words and calls."""

    def __init__(self, *turns: tuple[str, Sequence[tuple[str, dict[str, Any]]]]) -> None:
        super().__init__()
        self._turns = itertools.cycle(turns)

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await super().chat(body)
        text, wanted = next(self._turns)
        calls = [
            {
                "id": f"call-{self.requests}-{at}", "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(wanted)
        ]  # fmt: skip
        written = text + "".join(f"{call['function']['name']}{call['function']['arguments']}" for call in calls)
        choice = answer["choices"][0]
        choice["message"] = {"role": "assistant", "content": text or None, "tool_calls": calls or None}
        choice |= self._sampled([ord(letter) for letter in f"{written}</>"])
        return answer

    @staticmethod
    def _sampled(ids: list[int]) -> dict[str, Any]:
        return {
            "token_ids": ids,
            "logprobs": {"content": [{"logprob": -0.5} for _ in ids]},
            "weight_versions": [{"version": "0", "start": 0, "end": len(ids)}],
        }


class Rendering(Babble):
    """The same with a real chat template and tokenizer: what meets may become one token, and a turn that was written
    otherwise than the template would have it is rendered otherwise."""

    def __init__(self, prompts: Prompts, *turns: tuple[str, Sequence[tuple[str, dict[str, Any]]]]) -> None:
        super().__init__(*turns)
        self._prompts = prompts

    async def render(self, messages: Any, tools: Any = None) -> list[int]:
        return self._prompts.encode(self._prompts.text(list(messages), tools))

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await super().chat(body)
        choice = answer["choices"][0]
        message = choice["message"]
        calls = "".join(
            f'<tool_call>\n{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}'
            "\n</tool_call>"
            for call in message["tool_calls"] or []
        )
        choice |= self._sampled(self._prompts.encode(f"{message['content'] or ''}{calls}<|im_end|>"))
        answer["prompt_token_ids"] = await self.render(body["messages"], body["tools"])
        return answer


class Recorder:
    """An engine that keeps what it was asked and what it said: the truth that rows are compared with."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.prompts: list[list[int]] = []
        self.sampled: list[list[int]] = []
        self.requests: list[dict[str, Any]] = []
        self.renders = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._engine.chat(body)
        self.requests.append(body)
        self.prompts.append(answer["prompt_token_ids"])
        self.sampled.append(answer["choices"][0]["token_ids"])
        return answer

    async def render(self, messages: Sequence[dict[str, Any]], tools: Any = None) -> list[int]:
        self.renders += 1
        return await self._engine.render(messages, tools)


def trained_ids(played: Played, *, guided: bool = False) -> dict[int, tuple[list[int], list[int]]]:
    """By step, the ids that its tokens are trained behind, and those that are trained, as a trainer computes them.

    All the way: trajectory, credit, batch with lessons cut out, layout, micro-batches as they go into the model.
    """
    run = Trajectory(
        id="run", steps=played.steps, rows=played.rows, outcome=1.0, started=0.0, ended=1.0, group="g",
        source="sandbox", experience_ids=("lesson",) if guided else (),
    )  # fmt: skip
    other = msgspec.structs.replace(run, id="other", rows=(), outcome=0.0, experience_ids=(), trainable=False)
    items, labels = [], tuple(StepLabel("GOOD") for _ in played.steps)
    for trajectory in (run, other):
        attribution = Attribution(labels=labels, judge="test", rubric="1")
        credited = Attributed(id=trajectory.id, trajectory=trajectory, attribution=attribution)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(credited), type=Attributed)
        items.append(BatchItem(attributed=sent))
    limits = BuildSettings(vocabulary=10**6, max_tokens=10**6, chain=(0,), newest=0, max_staleness=4)
    built = build(items, assign(items, CreditSettings()), limits)
    assert built.batch is not None, built.dropped
    assert not built.dropped
    layout = Layout(built.batch)
    steps = built.batch.steps[built.batch.mask > 0]
    found: dict[int, tuple[list[int], list[int]]] = {}
    for micro in layout.micro_batches(layout.trained, 4096):
        for context, target, column in zip(micro.context, micro.target, micro.columns, strict=True):
            step = int(steps[column])
            if step not in found:
                begin = int(context) - int(micro.positions[context])
                found[step] = (micro.ids[begin : int(context) + 1].tolist(), [])
            found[step][1].append(int(target))
    return found


def differences(engine: Recorder, played: Played, *, guided: bool = False) -> list[int]:
    """Steps whose ids in training are not exactly those of the rollout, the lesson cut out."""
    trained = trained_ids(played, guided=guided)
    wrong = [step for step in range(len(engine.prompts)) if step not in trained]
    for step, (before, said) in trained.items():
        start, end = played.rows[played.steps[step].row].hint
        prompt = engine.prompts[step]
        if before != prompt[:start] + prompt[end:] or said != engine.sampled[step]:
            wrong.append(step)
    return sorted(wrong)


class LastAnswer(ContextTemplate):
    """A template of one's own: the goal, and the last answer in the words of the user."""

    def messages(self, history):
        messages = list(history.opening)
        if history.past:
            append_user(messages, f"so far: {history.past[-1].seen[0]['content']}")
        return messages


async def off_by(engine: Recorder, played: Played) -> float:
    """Greatest difference of a recorded log-prob to what the engine computes for the same row, nats."""
    worst = 0.0
    for row in played.rows:
        ids, on = ids_array(row.ids).tolist(), steps_array(row.step) >= 0
        again = await engine.log_probs(ids)
        worst = max(worst, float(np.abs(again[on] - floats_array(row.logprobs)[on]).max()))
    return worst
