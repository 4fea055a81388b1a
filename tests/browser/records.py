"""What the browser tests find in the store: an hour of agents at work, versions of which one was taken back, lessons in
every state, records that were parked, and texts that would like to be markup."""

import time
from typing import Any

from actors.messages import (
    Attributed,
    Attribution,
    BatchOrder,
    Candidate,
    Directive,
    Experience,
    Feedback,
    FileDigest,
    Message,
    Serving,
    Step,
    StepLabel,
    TokenRow,
    ToolCall,
    Trajectory,
    Verdict,
    derived_id,
    pack_array,
)
from actors.messages.signing import SigningKey, sign
from actors.store import Store
from actors.store.records import Joined
from tests.browser.hostile import HOSTILE

START = time.time() - 3600.0
RUNS = 60


def learning() -> dict[str, Any]:
    """What the status says of it: it waits, with an agent that is learned from and one whose name would be markup."""
    agent = {
        "since": START, "seen": START, "learned": 0, "reasons": {}, "calls": 40,
        "calls_that_train": 40, "calls_sentence": "all 40", "calls_remedy": "",
    }  # fmt: skip
    return {
        "state": "waiting", "waits_for": "outcomes", "sentence": "5 of 8 outcomes for the next update since 09:10 UTC.",
        "remedy": "report how runs went: POST /v1/feedback", "have": 5, "need": 8, "since": START,
        "effect": {"sentence": "12 of 41 runs of production (29 %) changed the weights."}, "head": 4, "serving": [3],
        "lead": None, "agents_known": 2,
        "agents": [
            agent | {
                "agent": "default/desk#1", "label": "default, desk, with book", "learning": True, "learned": 12,
                "sentence": "Learning: 12 of 12 runs ordered changed the weights.", "remedy": "", "runs": 40,
                "reported": 40,
            },
            agent | {
                "agent": f"{HOSTILE}/x#2", "label": HOSTILE, "learning": False, "remedy": HOSTILE, "runs": 1,
                "sentence": f"Not learning: of 1 run none can be learned from: 1 {HOSTILE}.", "reported": 0,
            },
        ],
    }  # fmt: skip


async def fill(store: Store, key: SigningKey) -> None:
    """Write all of it."""
    await store.save([*_lessons(), *(_run(number) for number in range(RUNS)), _hostile(), _unjudged()])
    for number in range(1, 5):
        await store.save(_version(number, key))
    await store.save([_back(key)])
    for number, actor in enumerate(("navigator", "curator")):
        await store.park(
            actor, f"input-{number}", "trajectory.attributed", b"\x00" * 120, f"ValueError: cannot read it {HOSTILE}"
        )  # fmt: skip


def _row(steps: int, version: int) -> TokenRow:
    """Per step 6 tokens of context and 8 sampled."""
    step = [number if place >= 6 else -1 for number in range(steps) for place in range(14)]
    logprobs = [
        -0.05 * (place % 8) - 0.1 * number if step[14 * number + place] >= 0 else 0.0
        for number in range(steps)
        for place in range(14)
    ]
    return TokenRow(
        ids=pack_array(range(len(step)), "<i4"), step=pack_array(step, "<i2"), logprobs=pack_array(logprobs, "<f4"),
        versions=pack_array([version if each >= 0 else -1 for each in step], "<i4"), hint=(0, 4),
    )  # fmt: skip


def _attributed(key: str, goal: str, number: int, **fields: Any) -> Attributed:
    version = min(3, number // 15)
    steps = (
        Step(
            exchange_id=f"x-{key}-0", tool_calls=(ToolCall("search_flights", '{"from": "BER", "to": "LIS"}'),),
            observation='{"flights": [{"id": "K1", "price": 120}, {"id": "K2", "price": 310}]}' + " " * 400 + "end",
            row=0,
        ),
        Step(
            exchange_id=f"x-{key}-1", tool_calls=(ToolCall("book", '{"flight": "K1"}'),), observation='{"ref": "Z1"}',
            row=0,
        ),
        Step(exchange_id=f"x-{key}-2", text="Your flight is booked: Z1.", row=0),
    )  # fmt: skip
    solved = number % 4 != 0 or number > 40
    values: dict[str, Any] = {
        "id": key, "goal": goal, "steps": steps, "rows": (_row(3, version),), "outcome": float(solved),
        "started": START + 55 * number, "ended": START + 55 * number + 21, "closed_by": "feedback",
        "min_version": version, "max_version": version,
    }  # fmt: skip
    run = Trajectory(**{**values, **fields})
    labels = (
        StepLabel("GOOD", 0.92, "its result was used by step 2"),
        StepLabel("GOOD" if solved else "BAD", 0.8, "booked what was asked" if solved else "booked the wrong flight"),
        StepLabel("ABSTAIN", 0.0, ""),
    )
    attribution = Attribution(labels=labels[: len(run.steps)], judge="rules", rubric="rules-1")
    return Attributed(id=key, trajectory=run, attribution=attribution, cluster="book")


def _run(number: int) -> Attributed:
    source = ("production", "production", "sandbox")[number % 3]
    return _attributed(
        f"run{number:03d}", f"Book the cheapest flight to Lisbon, request {number}", number, source=source,
        experience_ids=("lesson-active",) if number % 5 == 0 else (),
    )  # fmt: skip


def _hostile() -> Attributed:
    step = Step(exchange_id="x-h", text=HOSTILE, tool_calls=(ToolCall(HOSTILE, HOSTILE),), observation=HOSTILE)
    return _attributed(
        "hostile", HOSTILE, RUNS, steps=(step,), rows=(), tenant=HOSTILE, trainable=False, why_not="no token ids"
    )  # fmt: skip


def _unjudged() -> Trajectory:
    step = Step(exchange_id="x-u", text="thinking")
    return Trajectory(
        id="unjudged", goal="Rebook", steps=(step,), source="probe", started=START + 3500, ended=START + 3510
    )  # fmt: skip


def _lessons() -> list[Experience]:
    def lesson(state: str, **fields: Any) -> Experience:
        values = {
            "id": f"lesson-{state}", "when_to_use": "book a flight", "content": "search then book", "state": state,
            "origin": "contrast", "reason": "more succeed with it", "sources": ("run001", "gone"), "independent": 4,
            "guided": (20, 17), "unguided": (22, 11), "updated": START + 900,
        }  # fmt: skip
        return Experience(**{**values, **fields})

    return [
        lesson("active"),
        lesson(
            "candidate", when_to_use="cancel a booking", content="check the policy before you cancel", guided=(0, 0)
        ),
        lesson("quarantined", when_to_use=HOSTILE, content=HOSTILE, reason="one source stands behind it"),
        lesson("retired", when_to_use="rename a passenger", reason="no gain: -0.14 [-0.35, +0.03]"),
    ]


def _version(number: int, key: SigningKey) -> list[Message]:
    """v1 and v3 came in, v2 came in and went, v4 was rejected."""
    at = START + 600.0 * number
    runs = tuple(f"run{each:03d}" for each in range(10 * (number - 1), 10 * number))
    order = BatchOrder(
        id=f"batch{number}", path=f"/batches/{number}", sha256="0" * 64, size=1, trajectories=runs, production=6,
        created=at - 60,
    )  # fmt: skip
    candidate = Candidate(
        id=derived_id("candidate", number), version=number, parent=number - 1, path=f"/v{number}",
        files=(FileDigest("model.safetensors", "1" * 64, 10),), manifest=f"{number}" * 64, batch_ids=(order.id,),
        metrics={"loss": 0.31 / number, "kl": 0.004, "trained_tokens": 4200.0}, created=at,
    )  # fmt: skip
    decision = "reject" if number == 4 else "promote"
    measured = {
        "success": 0.5 + 0.1 * number, "low": 0.4 + 0.1 * number, "high": 0.6 + 0.1 * number, "tasks": 64.0,
        "incumbent_success": 0.5, "incumbent_difference": 0.1 * number if number < 4 else -0.1, "safety_passed": 1.0,
        "prompts_refusals": 0.0, "drift_kl": 0.004, "family_book_success": 0.7,
    }  # fmt: skip
    verdict = Verdict(
        id=f"verdict{number}", version=number, path=candidate.path, manifest=candidate.manifest, incumbent=number - 1,
        decision=decision, reason=f"solved {measured['success']:.2f} of 64 held-out tasks", measurements=measured,
        created=at + 30,
    )  # fmt: skip
    swap = Serving(
        id=f"swap{number}", engine="serving", version=number, previous=number - 1, path=candidate.path,
        result="swapped", since=at + 45, paused_seconds=0.058, total_seconds=1.2,
    )  # fmt: skip
    outcome = Feedback(
        id=f"said{number}", received=at, trajectory_id=runs[0], outcome=1.0, text="the traveller was glad"
    )
    joined = Joined(id=outcome.id, trajectory_id=runs[0])
    return [order, candidate, sign(verdict, key), outcome, joined, *([] if number == 4 else [swap])]


def _back(key: SigningKey) -> Directive:
    return sign(
        Directive(
            id="back2", kind="rollback", reason="success fell by 0.31 after v2", origin="sentinel",
            created=START + 1500, details={"version": "2", "to": "1"},
        ),
        key,
    )  # fmt: skip
