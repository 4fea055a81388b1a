"""Agents at work: arrivals, exchanges and outcomes."""

import json
import math
import random
from collections.abc import Iterator

import msgspec
import numpy as np

from actors.kinds.clusters import cluster_of
from actors.messages import (
    Attributed,
    Attribution,
    Exchange,
    Feedback,
    Step,
    StepLabel,
    TokenRow,
    ToolCall,
    Trajectory,
    VersionSpan,
    derived_id,
    pack_array,
)
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.roles import roles_of
from tests.simulation import words
from tests.simulation.plan import LIES, Cell
from tests.simulation.policies import AGENT, DECISION, FEATURES, FIRST_NEUTRAL, Policies
from tests.simulation.reporters import Reporters

SECONDS = 5.0
"""How long a run takes."""
IDLE = 900.0
"""Seconds after which the assembler closes a run of which nobody says anything; its default."""
_NEUTRAL = 7
_END, _OBSERVED = 2, (5, 6, 7)
_BURST = 20
"""Runs of a burst; they begin within half a minute, or a quarter of the time to the next."""
_DAY = 86_400.0
_WORK = (
    ("orders", "refund_order", "find_order"), ("parcels", "track_parcel", "send_parcel"),
    ("accounts", "change_account", "close_account"), ("bookings", "cancel_booking", "book_room"),
    ("invoices", "send_invoice", "void_invoice"), ("stock", "count_stock", "move_stock"),
    ("travel", "find_trip", "hold_seat"), ("staff", "plan_shift", "swap_shift"), ("fleet", "find_car", "lock_car"),
    ("press", "draft_note", "post_note"),
)  # fmt: skip


_ROLES: dict[str, str] = {}
"""By system prompt."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One of the agents, or the party that lies."""

    number: int
    tenant: str
    caller: str
    system: str
    tools: bytes
    tool: str
    lies: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent did, and when who says what of it."""

    id: str
    number: int
    agent: Agent
    goal: str
    version: int
    engine: str
    started: float
    success: bool
    row: TokenRow
    reports: tuple[tuple[float, float], ...]
    """(unix seconds, outcome) in the order of their times; each corrects the one before."""


def agents(cell: Cell) -> list[Agent]:
    found = [_agent(number) for number in range(cell.agents)]
    if cell.liar:
        # A key of the first agent's tenant, with the same tools: its runs are evidence of the same kind.
        found.append(msgspec.structs.replace(found[0], caller="key-mallory", lies=True))
    return found


def _agent(number: int) -> Agent:
    topic, tool, other = _WORK[number % len(_WORK)]
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
        for name in (tool, other)
    ]
    return Agent(
        number=number, tenant=f"tenant-{number % 3}", caller=f"key-{number}", tool=tool,
        system=f"You are the {topic} agent. Use the tools.", tools=json.dumps(tools).encode(),
    )  # fmt: skip


def arrivals(cell: Cell, rng: random.Random, now: float) -> Iterator[float]:
    """Unix seconds at which runs begin, for ever; `cell.rate` a minute on average."""
    rate = cell.rate / 60.0
    while True:
        if cell.arrivals == "bursts":
            lasts = min(30.0, 0.25 * _BURST / rate)
            now += rng.expovariate(1.0 / (_BURST / rate - lasts))
            yield from sorted(now + rng.random() * lasts for _ in range(_BURST))
            now += lasts
            continue
        peak = rate * (2.0 if cell.arrivals == "days" else 1.0)
        now += rng.expovariate(peak)
        # At night nearly nothing, at noon twice the mean: thinning (Lewis and Shedler 1979).
        kept = 0.5 * (1.0 - math.cos(2.0 * math.pi * now / _DAY)) if cell.arrivals == "days" else 1.0
        if rng.random() < kept:
            yield now


class Traffic:
    def __init__(self, cell: Cell, policies: Policies, rng: random.Random, *, name: str) -> None:
        self._cell, self._policies, self._rng, self._name = cell, policies, rng, name
        self.agents = agents(cell)
        self._honest = self.agents[: cell.agents]
        self._count = 0
        self._reporters = Reporters(cell, policies.skill[0][0], rng)

    def run(self, now: float, version: int, engine: str) -> Run:
        rng, cell = self._rng, self._cell
        self._count += 1
        identity = derived_id("run", self._name, self._count)
        liar = cell.liar and rng.random() < LIES
        agent = self.agents[-1] if liar else rng.choice(self._honest)
        success = rng.random() < self._policies.succeeds(version, agent.number)
        goal = words.goal(cell.goals, rng, self._count)
        ended = now + SECONDS
        if agent.lies:
            reports = self._reporters.lie(ended, version, success=success)
        else:
            reports = self._reporters.tell(ended, agent.number, version, success=success)
        return Run(
            id=identity, number=self._count, agent=agent, goal=goal, version=version, engine=engine, started=now,
            success=success, row=self._row(agent, success, version), reports=reports,
        )  # fmt: skip

    def _row(self, agent: Agent, success: bool, version: int) -> TokenRow:
        number = self._count
        ids = [1, AGENT + agent.number, *(30 + (number >> shift) % 64 for shift in (12, 6, 0)), DECISION + success]
        ids += [FIRST_NEUTRAL + self._rng.randrange(FEATURES) for _ in range(_NEUTRAL)]
        sampled = np.arange(len(ids)) >= len(ids) - _NEUTRAL - 1
        scores = self._policies.log_probs(np.asarray(ids, dtype=np.int32), version)
        return TokenRow(
            ids=pack_array(ids, "<i4"),
            step=pack_array(np.where(sampled, 0, -1), "<i2"),
            logprobs=pack_array(np.where(sampled, scores, 0.0), "<f4"),
            versions=pack_array(np.where(sampled, version, -1), "<i4"),
        )


def exchanges(run: Run) -> list[Exchange]:
    """The two calls of a run, as the tap would report them: a tool call, and an answer to its result."""
    agent, arguments = run.agent, json.dumps({"text": run.goal})
    call = {"id": f"call-{run.id}", "type": "function", "function": {"name": agent.tool, "arguments": arguments}}
    result = {"ok": True, "done": run.number} if run.success else {"ok": False, "error": "not possible"}
    before: list[dict[str, object]] = [
        {"role": "system", "content": agent.system}, {"role": "user", "content": run.goal},
    ]  # fmt: skip
    acts = {"role": "assistant", "content": None, "tool_calls": [call]}
    after = [*before, acts, {"role": "tool", "content": json.dumps(result), "tool_call_id": call["id"]}]
    ids = np.frombuffer(run.row.ids, dtype="<i4").tolist()
    scores = np.frombuffer(run.row.logprobs, dtype="<f4").tolist()
    cut = len(ids) - _NEUTRAL - 1
    ends: dict[str, object] = {"role": "assistant", "content": f"Done: {run.goal[:40]}"}
    return [
        _exchange(run, 0, before, acts, ids[:cut], ids[cut:], scores[cut:]),
        _exchange(run, 1, after, ends, [*ids, *_OBSERVED], [_END], [-1.0]),
    ]


def _exchange(
    run: Run, number: int, messages: list[dict[str, object]], reply: dict[str, object], prompt: list[int],
    sampled: list[int], scores: list[float],
) -> Exchange:  # fmt: skip
    response_id = f"r-{run.id}-{number}"
    request = {"model": "m", "messages": messages, "tools": json.loads(run.agent.tools)}
    return Exchange(
        id=exchange_id(run, number), tenant=run.agent.tenant, caller=run.agent.caller,
        endpoint="/v1/chat/completions", engine=run.engine, started=run.started + 3.0 * number, duration=1.0,
        status=200, request=json.dumps(request).encode(),
        response=json.dumps({"id": response_id, "choices": [{"message": reply}]}).encode(), response_id=response_id,
        prompt_ids=pack_array(prompt, "<i4"), response_ids=pack_array(sampled, "<i4"),
        logprobs=pack_array(scores, "<f4"), versions=(VersionSpan(run.version, 0, len(sampled)),),
    )  # fmt: skip


def exchange_id(run: Run, number: int) -> str:
    return f"x-{run.id}-{number}"


def report(run: Run, number: int) -> Feedback:
    """What is said of `run` for the first time, 0, or later."""
    received, outcome = run.reports[number]
    return Feedback(
        id=derived_id("feedback", run.id, number), received=received, tenant=run.agent.tenant,
        exchange_id=exchange_id(run, 1), outcome=outcome,
    )  # fmt: skip


def _role(run: Run) -> str:
    """As the assembler names it."""
    agent = run.agent
    if agent.system not in _ROLES:
        _ROLES[agent.system] = roles_of([read_turn(exchanges(run)[0])])[0]
    return _ROLES[agent.system]


def closed(run: Run) -> tuple[Attributed, float]:
    """The run as it closes, and when: where exchanges would be too many, it comes as the assembler and the attributor
    would hand it on."""
    ended = run.started + SECONDS
    in_time = [told for told in run.reports[:1] if told[0] - ended < IDLE]
    call = ToolCall(run.agent.tool, json.dumps({"text": run.goal}))
    trajectory = Trajectory(
        id=run.id, tenant=run.agent.tenant, caller=run.agent.caller, goal=run.goal, tools=run.agent.tools,
        outcome=in_time[0][1] if in_time else None,
        steps=(
            Step(exchange_id=exchange_id(run, 1), tool_calls=(call,), row=0, role=_role(run)),
        ),
        rows=(run.row,), closed_by="feedback" if in_time else "idle", started=run.started, ended=ended,
        min_version=run.version, max_version=run.version,
    )  # fmt: skip
    label = StepLabel("GOOD" if run.success else "BAD", 0.9)
    attribution = Attribution(labels=(label,), judge="rules", rubric="1")
    attributed = Attributed(
        id=run.id, trajectory=trajectory, attribution=attribution, cluster=cluster_of(run.goal)
    )  # fmt: skip
    return attributed, in_time[0][0] if in_time else ended + IDLE
