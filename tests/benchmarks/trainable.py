"""What share of agents' calls can be trained on, by client and route, against a real vLLM with the plug-in.

    python -m tests.benchmarks.trainable --engine http://127.0.0.1:8000 --json FILE

Starts a tap before the engine, which must serve the demo's warm start (`daemon/demo/warmstart`) under the names
`desk`, `text` and `varied`, in float32 and with `--logprobs-mode processed_logprobs`. Each client makes runs of four
calls at its defaults (only the length of an answer is bounded), half of the runs streamed. The calls are stitched as
the assembler does it. Parity: the largest difference between a recorded log-prob and that of the same checkpoint in
torch, on the rows that the trainer would get.

Then the clients of `tests/clients`, as their users install them (`make clients`): each holds two conversations of two
turns at once, one of them streamed, and the name of the model alone says which. This model was never taught their tools
and often calls others: a client tells it so, or gives up. They ask for longer answers than the model has positions
(`--max-model-len 8192 --hf-overrides '{"max_position_embeddings": 8192}'`). Runs with proper tool calls are those of
`python -m tests.clients`, whose engine is scripted.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from actors.messages import Exchange, TokenRow, floats_array, ids_array
from actors.messages.spool import RawExchange, decode_spooled
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.dialects import DIALECTS
from adapters.intake.streams import merge
from daemon.tap.spool_reader import SpoolReader
from tests.benchmarks.tapped import tapped
from tests.clients import rig
from tests.clients.catalogue import CLIENTS as CATALOGUE
from tests.clients.catalogue import Client, Run
from tests.clients.engine.script import TEXT, VARIED
from tests.clients.verdict import exchanges, stitched

MODEL = Path("daemon/demo/warmstart")
TURNS = 4
TOKENS = 48
_SETTLED = 2.0
"""Seconds after which what a client caused is in the spool."""
PARAMETERS = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NAMES = ("find_person", "find_flight")
PLACES = ("Oslo", "Rome", "Lima", "Kyiv", "Bern")


def goal(number: int) -> str:
    """What the user of run `number` wants: no two are alike, so that no run can be taken for another."""
    return f"Book a flight to {PLACES[number % len(PLACES)]} for guest {number}."


def chat(client: OpenAI, number: int, stream: bool) -> int:
    """The openai package at /v1/chat/completions."""
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in NAMES]
    messages: list[Any] = [{"role": "user", "content": goal(number)}]
    for _ in range(TURNS):
        if stream:
            with client.chat.completions.stream(
                model="desk", messages=messages, tools=tools, max_tokens=TOKENS
            ) as events:
                events.until_done()
                # The final completion raises where an answer was cut.
                said = events.current_completion_snapshot.choices[0].message
        else:
            said = (
                client.chat.completions.create(model="desk", messages=messages, tools=tools, max_tokens=TOKENS)
                .choices[0]
                .message
            )
        messages.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in said.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "none found"})
        if not said.tool_calls:
            messages.append({"role": "user", "content": "Go on."})
    return TURNS


def responses(client: OpenAI, number: int, stream: bool, *, linked: bool = False) -> int:
    """The openai package at /v1/responses.

    Args:
        linked: name the response before by its id, and send only what is new.
    """
    tools: Any = [{"type": "function", "name": name, "parameters": PARAMETERS} for name in NAMES]
    items: list[Any] = [{"role": "user", "content": goal(number)}]
    before: dict[str, Any] = {}
    for _ in range(TURNS):
        asked: dict[str, Any] = {"model": "desk", "input": items, "tools": tools, "max_output_tokens": TOKENS, **before}
        if stream:
            with client.responses.stream(**asked) as events:
                said = events.get_final_response()
        else:
            said = client.responses.create(**asked)
        if linked:
            items, before = [], {"previous_response_id": said.id}
        else:
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in said.output]
        calls = [item for item in said.output if item.type == "function_call"]
        for call in calls:
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": "none found"})
        if not calls:
            items.append({"role": "user", "content": "Go on."})
    return TURNS


def linked(client: OpenAI, number: int, stream: bool) -> int:
    """The same with `previous_response_id`: the engine must keep responses (`VLLM_ENABLE_RESPONSES_API_STORE=1`)."""
    return responses(client, number, stream, linked=True)


def messages(client: OpenAI, number: int, stream: bool) -> int:
    """/v1/messages by plain HTTP, with a system of blocks."""
    asked: dict[str, Any] = {
        "model": "desk",
        "max_tokens": TOKENS,
        "stream": stream,
        "system": [{"type": "text", "text": "You are a desk."}, {"type": "text", "text": "Use the tools."}],
        "tools": [{"name": name, "input_schema": PARAMETERS} for name in NAMES],
    }
    said: list[Any] = [{"role": "user", "content": goal(number)}]
    for _ in range(TURNS):
        answer = httpx.post(f"{client.base_url}messages", json={**asked, "messages": said}, timeout=60)
        answer.raise_for_status()
        whole = msgspec.json.encode(merge(answer.content, DIALECTS["anthropic"]).body) if stream else answer.content
        content = json.loads(whole)["content"]
        for block in content:
            if not isinstance(block.get("input", {}), dict):
                block["input"] = {}  # arguments that the model left unfinished: the API takes objects alone
        said.append({"role": "assistant", "content": content})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "none found"}
            for block in content
            if block["type"] == "tool_use"
        ]
        said.append({"role": "user", "content": results or "Go on."})
    return TURNS


CLIENTS: dict[str, Callable[[OpenAI, int, bool], int]] = {
    "openai chat": chat, "openai responses": responses, "openai responses, previous id": linked,
    "http messages": messages,
}  # fmt: skip


def differences(rows: list[TokenRow]) -> list[float]:
    """|recorded log-prob - log-prob of the checkpoint in torch|, of each sampled token."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    found: list[float] = []
    for row in rows:
        ids = torch.tensor(ids_array(row.ids).tolist())
        with torch.no_grad():
            logits = model(ids[None]).logits[0]
        own = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0].numpy()
        sampled = np.frombuffer(row.step, "<i2")[1:] >= 0
        found += np.abs(own - floats_array(row.logprobs)[1:])[sampled].tolist()
    return found


def measure(engine: str, name: str, runs: int, offset: int) -> dict[str, Any]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "tap"
        calls = 0
        with rig.tap(engine, directory) as url:
            client = OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
            for number in range(runs):
                calls += CLIENTS[name](client, offset + number, number % 2 == 1)
            seen = exchanges(rig.spooled(directory, calls))
    whole = stitched(seen).trajectories
    reasons = [read_turn(exchange, {exchange.engine}).why_not for exchange in seen]
    rows = [row for trajectory in whole for row in trajectory.rows]
    off = differences(rows)
    single = sum(len(each.steps) == TURNS and len(each.rows) <= 1 for each in whole)
    return {
        "client": name,
        "runs": runs,
        "calls": calls,
        "captured": len(seen),
        "trainable_share": sum(not why for why in reasons) / calls,
        "why_not": sorted({why for why in reasons if why}),
        "single_trajectory_share": sum(len(each.steps) == TURNS for each in whole) / runs,
        "single_row_share": single / runs,
        "sampled_tokens": len(off),
        "tool_calls": sum(len(step.tool_calls) for each in whole for step in each.steps),
        "logprob_max_difference": max(off, default=None),
    }


def frameworks(engine: str) -> list[dict[str, Any]]:
    """A row for each client of the catalogue that can hold such a conversation."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, rig.tap(engine, Path(temporary) / "tap") as url:
        reader = SpoolReader(Path(temporary) / "tap/spool")
        for client in CATALOGUE:
            if {TEXT, VARIED} & set(client.refuses):
                continue
            mine = [Run(client.name, VARIED, False, 0), Run(client.name, TEXT, True, 0)]
            before = answered(engine)
            got = rig.work([client], mine, url, Path(temporary) / "clients")
            calls = answered(engine) - before
            # A while, for calls that were refused are not in that count.
            time.sleep(_SETTLED)
            records: list[RawExchange] = []
            while batch := reader.read():
                records += [each for one in batch if isinstance(each := decode_spooled(one.payload), RawExchange)]
            found.append(row_of(client, calls, exchanges(records), got))
            print(json.dumps(found[-1]), flush=True)
    return found


def row_of(client: Client, calls: int, seen: list[Exchange], got: dict[str, Any]) -> dict[str, Any]:
    """What became of two runs.

    Args:
        calls: that the engine answered.
        seen: what was captured of them, and calls that it refused.
    """
    good = [exchange for exchange in seen if exchange.status == 200]
    reasons = [read_turn(exchange, {exchange.engine}).why_not for exchange in good]
    run_of = {exchange.id: exchange.model for exchange in good}
    whole = [
        {run_of[step.exchange_id] for step in each.steps if step.exchange_id in run_of}
        for each in stitched(good).trajectories
    ]
    runs = set(run_of.values())
    single = sum([run in each for each in whole].count(True) == 1 and {run} in whole for run in runs)
    failed = [each["error"].strip()[-200:] for each in got.values() if isinstance(each, dict) and "error" in each]
    return {
        "client": client.name,
        "calls": calls,
        "captured": len(good),
        "refused": len(seen) - len(good),
        "trainable_share": sum(not why for why in reasons) / calls if calls else None,
        "why_not": sorted({why for why in reasons if why}),
        "runs": len(runs),
        "single_trajectory_share": single / len(runs) if runs else None,
        "gave_up": failed,
    }


def answered(engine: str) -> int:
    """Requests that the engine has answered, by its own count."""
    families = text_string_to_metric_families(httpx.get(f"{engine}/metrics", timeout=30).text)
    return int(
        sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "vllm:request_success_total"
        )
    )


def overhead(engine: str, rounds: int) -> dict[str, Any]:
    """A call of `TOKENS` tokens at most by route, medians: milliseconds direct and through the tap, in turn, and
    microseconds of the tap's own time, as its histogram has it."""
    said = [{"role": "user", "content": goal(0)}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": said, "max_tokens": TOKENS},
        "/v1/responses": {"input": goal(0), "max_output_tokens": TOKENS},
        "/v1/messages": {"messages": said, "max_tokens": TOKENS},
    }
    ways = [(path, stream) for path in bodies for stream in (False, True)]
    took: dict[str, dict[str, list[float]]] = {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        tapped(int(engine.rpartition(":")[2]), Path(temporary) / "spool", capture_tokens=True, redaction={}) as tap,
        httpx.Client() as http,
    ):
        for _ in range(rounds):
            for path, stream in ways:
                body = {"model": "desk", **bodies[path], "stream": stream}
                row = took.setdefault(
                    f"{path}, streamed" if stream else path, {"direct_ms": [], "tap_ms": [], "own_us": []}
                )
                before = tap.overhead()
                for way, base in (("direct_ms", engine), ("tap_ms", f"http://127.0.0.1:{tap.port}")):
                    began = time.perf_counter()
                    http.post(base + path, json=body, timeout=60).raise_for_status()
                    row[way].append((time.perf_counter() - began) * 1000)
                after = tap.overhead()
                # The histogram is written when the call is over, which the client may know before the tap.
                if after.calls == before.calls + 1:
                    row["own_us"].append((after.seconds - before.seconds) * 1e6)
    return {
        way: {name: statistics.median(values) for name, values in row.items() if values} for way, row in took.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--engine", required=True, metavar="URL", help="a vLLM that serves the demo's warm start as desk"
    )
    parser.add_argument("--runs", type=int, default=20, help="of each client (20)")
    parser.add_argument("--rounds", type=int, default=100, help="calls of each route for the overhead (100)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    asked = parser.parse_args()
    rows = [measure(asked.engine, name, asked.runs, 1000 * at) for at, name in enumerate(CLIENTS) if asked.runs]
    figures = {
        "clients": rows,
        "frameworks": frameworks(asked.engine),
        "overhead_ms": overhead(asked.engine, asked.rounds),
    }
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
