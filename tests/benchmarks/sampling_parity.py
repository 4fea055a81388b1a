"""The trainer's log-probs against a real vLLM's, by route and by how was sampled.

    python -m tests.benchmarks.sampling_parity --engine http://127.0.0.1:8000 --json FILE

The engine serves the demo's warm start (`daemon/demo/warmstart`) as `desk`, in float32, with `--logprobs-mode
processed_logprobs`, the plug-in and `--tool-call-parser hermes`. Calls go through a tap, half of them streamed, are
read and stitched as the assembler does it, and are scored by the native trainer. `whole` is the largest difference to
the whole softmax at the call's temperature: what a learner without the processing would compare with. Of calls that a
grammar shaped `bound` is the share of tokens that it chose (recorded more than `FREE` above the learner's own), and
the differences are those of the others.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from actors.messages import Exchange, TokenRow, floats_array, ids_array, steps_array
from actors.trajectories.engine_defaults import EngineDefaults
from actors.trajectories.parsed_exchange import read_turn
from adapters.engines.client import EngineClient
from learner.batch import TrajectoryBatch
from learner.settings import LearnerSettings
from learner.trainers.native import NativeTrainer
from learner.trainers.staleness import FREE
from tests.benchmarks.trainable import MODEL, NAMES, PARAMETERS, TOKENS, goal
from tests.clients import rig
from tests.clients.verdict import exchanges, stitched

FULL: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 0.2": {"temperature": 0.2},
    "temperature 1.5": {"temperature": 1.5},
    "top_p 0.8": {"top_p": 0.8},
    "top_k 20": {"top_k": 20},
    "min_p 0.05": {"min_p": 0.05},
    "repetition 1.05": {"repetition_penalty": 1.05},
    "presence 0.5, frequency 0.3": {"presence_penalty": 0.5, "frequency_penalty": 0.3},
    "Qwen's: 0.7, 0.8, 20, 1.05": {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
    "nothing said": dict.fromkeys(FULL),
}
SCHEMA = {"name": "trip", "schema": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}}
SHAPED: dict[str, dict[str, Any]] = {
    "strict tools, auto": {"strict": True},
    "tool required": {"tool_choice": "required"},
    "tool named": {"tool_choice": {"type": "function", "function": {"name": NAMES[1]}}},
    "json_schema": {"tools": None, "response_format": {"type": "json_schema", "json_schema": SCHEMA}},
    "strict tools, top_p 0.8": {"strict": True, "top_p": 0.8},
}


def body(route: str, number: int, asked: dict[str, Any]) -> dict[str, Any]:
    """A request of `route`."""
    extra = {key: value for key, value in (FULL | asked).items() if value is not None and key != "strict"}
    about = {"name": NAMES[0], "parameters": PARAMETERS, "strict": bool(asked.get("strict"))}
    other = about | {"name": NAMES[1]}
    if route == "/v1/responses":
        tools = [{"type": "function", **one} for one in (about, other)]
        return {"input": goal(number), "max_output_tokens": TOKENS, "tools": tools, **extra}
    if route == "/v1/completions":
        return {"prompt": goal(number), "max_tokens": TOKENS, **extra}
    tools = [{"type": "function", "function": one} for one in (about, other)]
    own = {} if "tools" in asked else {"tools": tools}
    return {"messages": [{"role": "user", "content": goal(number)}], "max_tokens": TOKENS, **own, **extra}


def batch_of(rows: list[TokenRow], *, processed: bool) -> TrajectoryBatch:
    """`rows` as the trainer takes them, every sampled token with advantage 1."""
    ids = np.concatenate([ids_array(row.ids) for row in rows])
    steps = np.concatenate([steps_array(row.step) for row in rows])
    mask = (steps >= 0).astype(np.uint8)
    return TrajectoryBatch(
        ids=ids, mask=mask, advantages=mask.astype(np.float32), steps=steps,
        behaviour=np.concatenate([floats_array(row.logprobs) for row in rows]),
        clip_low=np.full(len(ids), 0.2, np.float32), clip_high=np.full(len(ids), 0.28, np.float32),
        versions=np.where(mask > 0, 0, -1).astype(np.int32),
        lengths=np.array([len(row.ids) // 4 for row in rows], np.int64), guided=np.zeros(len(rows), np.uint8),
        temperature=np.array([row.temperature for row in rows], np.float32),
        trajectory=np.arange(len(rows), dtype=np.int32), trajectories=tuple(map(str, range(len(rows)))),
        base_version=0, processing=tuple(row.processing for row in rows) if processed else (),
    )  # fmt: skip


def measure(trainer: NativeTrainer, seen: list[Exchange]) -> dict[str, Any]:
    """Differences of the calls' log-probs to the trainer's, nats."""
    reasons = sorted({why for one in seen if (why := read_turn(one, {one.engine}).why_not)})
    rows = [row for run in stitched(seen).trajectories for row in run.rows]
    if not rows:
        return {"calls": len(seen), "why_not": reasons, "tokens": 0}
    batch = batch_of(rows, processed=True)
    recorded, own = batch.behaviour[batch.mask > 0], trainer.log_probs(batch)
    found: dict[str, Any] = {"calls": len(seen), "why_not": reasons, "tokens": len(own)}
    off = np.abs(recorded - own)
    if any(row.processing.grammar for row in rows):
        bound = recorded - own > FREE
        found["bound"] = float(bound.mean())
        off = off[~bound]
    whole = np.abs(recorded - trainer.log_probs(batch_of(rows, processed=False)))
    return found | {"mean": float(off.mean()), "largest": float(off.max()), "whole": float(whole.max())}


def sent(url: str, route: str, asked: dict[str, Any], calls: int, offset: int) -> tuple[int, list[str]]:
    """How many calls were answered, and what was said of the others."""
    done, errors = 0, []
    for number in range(calls):
        asking = body(route, offset + number, asked) | {"model": "desk", "stream": number % 2 == 1, "seed": number}
        if route == "/v1/responses":
            del asking["seed"]
        answer = httpx.post(url + route, json=asking, timeout=120)
        done += 1
        if answer.status_code != 200:
            errors.append(answer.text[:200])
    return done, errors


async def effective(engine: str, seen: list[Exchange]) -> list[Exchange]:
    """As the assembler takes them."""
    async with EngineClient(engine, name="serving") as client:
        names = {one.engine: client for one in seen}
        defaults = EngineDefaults(names, time.monotonic)
        await defaults.look(seen)
        return [defaults.applied(one) for one in seen]


def main() -> None:
    """Print the table; write it with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, metavar="URL")
    parser.add_argument("--calls", type=int, default=8, help="of each row (8)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    trainer = NativeTrainer(LearnerSettings(device="cpu", threads=1, kl_coef=0.0), MODEL)
    rows: list[dict[str, Any]] = []
    wanted = [
        (route, name, asked)
        for route in ("/v1/chat/completions", "/v1/responses", "/v1/completions")
        for name, asked in (WAYS | (SHAPED if route == "/v1/chat/completions" else {})).items()
    ]
    wanted.append(("/v1/responses", "strict tools, auto", SHAPED["strict tools, auto"]))
    with tempfile.TemporaryDirectory() as temporary, rig.tap(given.engine, Path(temporary) / "tap") as url:
        total, known = 0, set[str]()
        for at, (route, name, asked) in enumerate(wanted):
            done, errors = sent(url, route, asked, given.calls, 1000 * at)
            total += done
            seen = [one for one in exchanges(rig.spooled(Path(temporary) / "tap", total)) if one.id not in known]
            known |= {one.id for one in seen}
            seen = asyncio.run(effective(given.engine, [one for one in seen if one.status == 200]))
            rows.append({"route": route, "sampling": name, **measure(trainer, seen), "errors": errors[:1]})
            print(rows[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
