"""What a swap costs on a real vLLM: from pause to resume, beside the bare reload.

    python -m tests.benchmarks.swap --python .venv-vllm/bin/python --json build/swap.json
    python -m tests.benchmarks.swap --python .venv-vllm/bin/python --layers 12 --json build/swap_200m.json

A vLLM with the plug-in, started by `evolved engine --vllm`; clients that stream and clients that wait for the whole
answer; swaps as the daemon does them, by the program of `adapters.engines.swap`. Between the swaps, under the same
load, stock `reload_weights` alone is timed within a pause: that is the bare cost. `total_vs_reload` is the median from
pause sent to resume answered over the median of that. An answer fails if its status or its transport does, and is
truncated if it has fewer tokens than were asked for.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import torch
import uvloop
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from actors.ports.errors import EngineError
from adapters.engines.swap import run_swap
from adapters.engines.swap_files import SwapJob, SwapOutcome
from adapters.engines.vllm import VllmEngine
from tests.benchmarks import report
from tests.support import checkpoints
from tests.support.engines import vllm_engine

SERVED = ("--served-model-name", "bench", "--max-model-len", "1024", "--max-num-seqs", "64")
TOKENS = 200
"""Of an answer."""
BARE_EVERY = 5
"""Swaps between two bare reloads."""
WIDTH, INNER, HEADS = 1024, 4096, 16
"""Of the larger model: 16.8 million parameters a layer."""


def write_model(directory: Path, layers: int, seed: int) -> Path:
    """Random weights: the tests' tiny model for no layers, else bfloat16 ones of `layers` layers."""
    checkpoints.write(directory, seed)
    if not layers:
        return directory
    config = json.loads((directory / "config.json").read_text())
    config |= {
        "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    model: Any = Qwen2ForCausalLM(Qwen2Config(**config))
    made = {name: tensor.contiguous() for name, tensor in model.bfloat16().state_dict().items()}
    save_file(made, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


class Client:
    """Streams one answer after the other over one connection, and notes when each piece came."""

    def __init__(self, port: int, tokens: int, think: float) -> None:
        self._think = think
        body = json.dumps(
            {
                "model": "bench", "messages": [{"role": "user", "content": "go on"}], "max_tokens": tokens,
                "ignore_eos": True, "stream": True, "logprobs": True, "return_token_ids": True,
                "return_weight_versions": True,
            }
        ).encode()  # fmt: skip
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._port, self._request = port, head.encode() + body
        self.gaps: list[tuple[float, float]] = []
        """When a silence ended, and how long it was."""
        self.answers: list[bytes] = []
        """As they came: they are read when nothing is measured any more."""
        self.broken: list[str] = []
        """How connections broke."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop, and the answer that is under way has ended."""
        while not stop.is_set() and len(self.broken) < 100:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                while not stop.is_set():
                    self.answers.append(await self._answer(reader, writer))
                    await asyncio.sleep(self._think)
                writer.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                self.broken.append(f"stream: {type(error).__name__}")
                await asyncio.sleep(0.1)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(self._request)
        data = bytearray()
        before = 0.0
        while not data.endswith(b"0\r\n\r\n"):
            piece = await asyncio.wait_for(reader.read(65536), 60)
            now = time.perf_counter()
            if not piece:
                raise ConnectionResetError
            if before:
                self.gaps.append((now, now - before))
            before = now
            data += piece
        return bytes(data)


class Plain:
    def __init__(self, engine: VllmEngine, tokens: int, think: float) -> None:
        self._engine, self._tokens, self._think = engine, tokens, think
        self.answers: list[str] = []
        """What each came to, as `judged` says."""

    async def run(self, stop: asyncio.Event) -> None:
        prompt = await self._engine.render([{"role": "user", "content": "go on"}])
        while not stop.is_set():
            try:
                made = await self._engine.generate(prompt, max_tokens=self._tokens, ignore_eos=True)
            except EngineError as error:
                self.answers.append(f"failed: {error}"[:200])
                continue
            self.answers.append("whole" if len(made.token_ids) == self._tokens else "truncated")
            await asyncio.sleep(self._think)


def judged(answer: bytes, tokens: int) -> str:
    """What a streamed answer came to: whole, truncated, or failed and how."""
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    if not answer.startswith(b"HTTP/1.1 200") or any("error" in event for event in events):
        return f"failed: {answer[-200:].decode(errors='replace')}"
    count = sum(len(c.get("token_ids") or ()) for event in events for c in event.get("choices", ()))
    return "whole" if count == tokens else "truncated"


class Measured:
    """What the run showed, in seconds."""

    def __init__(self) -> None:
        self.outcomes: list[SwapOutcome] = []
        self.bare: list[float] = []
        self.worst: list[float] = []
        """Longest silence of any client around each swap."""
        self.quiet: list[float] = []
        """The same in stretches as long, without a swap."""
        self.answers: Counter[str] = Counter()
        """By what they came to, as `judged` says."""


async def bare_reload(engine: VllmEngine, path: Path) -> float:
    """Seconds of stock `reload_weights` within a pause, without the pause."""
    await engine.pause()
    try:
        async with httpx.AsyncClient(timeout=300) as http:
            began = time.perf_counter()
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
            (await http.post(f"{engine.url}/collective_rpc", json=body)).raise_for_status()
            return time.perf_counter() - began
    finally:
        await engine.resume()


async def measure(url: str, paths: tuple[Path, Path], options, directory: Path) -> Measured:
    measured, stop = Measured(), asyncio.Event()
    async with VllmEngine(url) as engine:
        streams = [Client(int(url.rsplit(":", 1)[1]), TOKENS, options.think) for _ in range(options.streams)]
        plain = [Plain(engine, TOKENS, options.think) for _ in range(options.plain)]
        tasks = [asyncio.create_task(client.run(stop)) for client in (*streams, *plain)]
        await asyncio.sleep(3.0)
        windows: list[tuple[float, float]] = []
        quiet: list[tuple[float, float]] = []
        for number in range(1, options.swaps + 1):
            job = SwapJob(
                engine=url, path=str(paths[number % 2]), version=number, result=str(directory / "swap.json"),
                last_good=str(paths[(number + 1) % 2]), last_version=number - 1, deadline=300.0,
            )  # fmt: skip
            began = time.perf_counter()
            measured.outcomes.append(await run_swap(job))
            await asyncio.sleep(0.1)  # the silence may end just after the program did
            windows.append((began, time.perf_counter()))
            await asyncio.sleep(0.3)
            if number % BARE_EVERY == 0:
                began = time.perf_counter()
                await asyncio.sleep(windows[-1][1] - windows[-1][0])
                quiet.append((began, time.perf_counter()))
                measured.bare.append(await bare_reload(engine, paths[number % 2]))
        stop.set()
        await asyncio.gather(*tasks)
    gaps = [gap for client in streams for gap in client.gaps]
    measured.worst, measured.quiet = _longest(gaps, windows), _longest(gaps, quiet)
    for client in streams:
        measured.answers.update(judged(answer, TOKENS) for answer in client.answers)
        measured.answers.update(f"failed: {why}" for why in client.broken)
    for client in plain:
        measured.answers.update(client.answers)
    return measured


def _longest(gaps: list[tuple[float, float]], windows: list[tuple[float, float]]) -> list[float]:
    """The longest silence that ended within each window, of any client."""
    return [max((length for at, length in gaps if a <= at <= b), default=0.0) for a, b in windows]


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--python", default=".venv-vllm/bin/python", help="interpreter of vLLM's environment")
    parser.add_argument("--layers", type=int, default=0, help="16.8 million bfloat16 parameters each (0: a tiny model)")
    parser.add_argument("--swaps", type=int, default=100, help="(100)")
    parser.add_argument("--streams", type=int, default=16, help="clients that stream (16)")
    parser.add_argument("--plain", type=int, default=16, help="clients that wait for the whole answer (16)")
    parser.add_argument(
        "--think", type=float, default=2.0,
        help="seconds that a client waits between two answers (2); with 0 a tiny model's API process, which has 32 "
        "clients' tokens to write, is behind by seconds, swap or no swap",
    )  # fmt: skip
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths = tuple(write_model(directory / f"v{i}", options.layers, i) for i in (0, 1))
        size = (paths[0] / "model.safetensors").stat().st_size
        with vllm_engine(options.python, paths[0], *SERVED, log=directory / "log") as url:
            measured = uvloop.run(measure(url, (paths[0], paths[1]), options, directory))
        show(measured, size, options)


def show(measured: Measured, size: int, options) -> None:
    swapped = [outcome for outcome in measured.outcomes if outcome.result == "swapped"]
    total = sorted(outcome.paused_seconds for outcome in swapped)
    answers = measured.answers
    failed = {what: count for what, count in answers.items() if what.startswith("failed")}

    def at(values: list[float], share: float) -> float:
        return 1e3 * sorted(values)[round(share * (len(values) - 1))]

    figures = {
        "swaps": len(swapped),
        "swaps_failed": len(measured.outcomes) - len(swapped),
        "answers": answers.total(),
        "failed": sum(failed.values()),
        "truncated": answers["truncated"],
        "total_vs_reload": statistics.median(total) / statistics.median(measured.bare),
        "reload_p50_ms": at(measured.bare, 0.5),
        "file_mb": size / 1e6,
    }
    for name, values in (("total", total), ("gap", measured.worst), ("quiet_gap", measured.quiet)):
        figures |= {f"{name}_p50_ms": at(values, 0.5), f"{name}_p99_ms": at(values, 0.99)}
    title = f"{len(swapped)} swaps under {options.streams} streams and {options.plain} others"
    report.table(title, ("", "figure"), [(name, f"{value:,.2f}") for name, value in figures.items()])
    for what, count in failed.items():
        print(f"{count} {what}", file=sys.stderr)
    report.write(options.json, "swap", figures)


if __name__ == "__main__":
    main()
