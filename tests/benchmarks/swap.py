"""What a swap costs on a real vLLM: from pause to resume, beside the bare reload and the reading of the file.

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

import httpx
import torch
import uvloop
from safetensors.torch import save_file

from actors.ports.errors import EngineError
from adapters.engines.swap import run_swap
from adapters.engines.swap_files import SwapJob, SwapOutcome
from adapters.engines.vllm import VllmEngine
from tests.benchmarks import report
from tests.support import checkpoints
from tests.support.engines import vllm_engine

SERVED = ("--served-model-name", "bench", "--max-model-len", "1024", "--max-num-seqs", "64")
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
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) / columns**0.5).bfloat16()

    made = {"model.embed_tokens.weight": normal(config["vocab_size"], WIDTH) * 8}
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name in ("q", "k", "v", "o"):
            made[f"{layer}self_attn.{name}_proj.weight"] = normal(WIDTH, WIDTH)
        for name in ("q", "k", "v"):
            made[f"{layer}self_attn.{name}_proj.bias"] = normal(1, WIDTH)[0]
        made[f"{layer}mlp.gate_proj.weight"], made[f"{layer}mlp.up_proj.weight"] = normal(INNER, WIDTH), normal(
            INNER, WIDTH
        )  # fmt: skip
        made[f"{layer}mlp.down_proj.weight"] = normal(WIDTH, INNER)
        for name in ("input", "post_attention"):
            made[f"{layer}{name}_layernorm.weight"] = torch.ones(WIDTH, dtype=torch.bfloat16)
    made["model.norm.weight"] = torch.ones(WIDTH, dtype=torch.bfloat16)
    made["lm_head.weight"] = normal(config["vocab_size"], WIDTH)
    save_file(made, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


class Client:
    """Streams one answer after the other over one connection, and notes when each piece came."""

    def __init__(self, port: int, tokens: int, think: float = 0.0) -> None:
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
        self.broken = 0
        self.why: list[tuple[float, str]] = []
        """When a connection broke, and how."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop, and the answer that is under way has ended."""
        while not stop.is_set():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                while not stop.is_set():
                    self.answers.append(await self._answer(reader, writer))
                    await asyncio.sleep(self._think)
                writer.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                self.broken += 1
                self.why.append((time.perf_counter(), f"stream: {type(error).__name__}"))
                if self.broken > 100:
                    return
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
    """Asks for one whole answer after the other."""

    def __init__(self, engine: VllmEngine, tokens: int, think: float) -> None:
        self._engine, self._tokens, self._think = engine, tokens, think
        self.answers = self.failed = self.truncated = 0
        self.why: list[tuple[float, str]] = []

    async def run(self, stop: asyncio.Event) -> None:
        prompt = await self._engine.render([{"role": "user", "content": "go on"}])
        while not stop.is_set():
            try:
                made = await self._engine.generate(prompt, max_tokens=self._tokens, ignore_eos=True)
            except EngineError as error:
                self.failed += 1
                self.why.append((time.perf_counter(), f"plain: {error}"[:200]))
                continue
            self.answers += 1
            self.truncated += len(made.token_ids) != self._tokens
            await asyncio.sleep(self._think)


def judged(answer: bytes, tokens: int) -> str:
    """What a streamed answer came to: whole, failed or truncated."""
    if not answer.startswith(b"HTTP/1.1 200"):
        return "failed"
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    if any("error" in event for event in events):
        return "failed"
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
        self.answers = self.failed = self.truncated = 0
        self.complaints: Counter[str] = Counter()
        """What failed, and whether around a swap."""


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
        streams = [Client(int(url.rsplit(":", 1)[1]), options.tokens, options.think) for _ in range(options.streams)]
        plain = [Plain(engine, options.tokens, options.think) for _ in range(options.plain)]
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
            await asyncio.sleep(options.every)
            if number % options.bare_every == 0:
                began = time.perf_counter()
                await asyncio.sleep(windows[-1][1] - windows[-1][0])
                quiet.append((began, time.perf_counter()))
                measured.bare.append(await bare_reload(engine, paths[number % 2]))
            if sys.stderr.isatty() or number % 10 == 0:
                print(f"{number} swaps", file=sys.stderr, flush=True)
        stop.set()
        await asyncio.gather(*tasks)
    gaps = [gap for client in streams for gap in client.gaps]
    measured.worst, measured.quiet = _longest(gaps, windows), _longest(gaps, quiet)
    verdicts = [judged(answer, options.tokens) for client in streams for answer in client.answers]
    for at, why in (reason for client in (*streams, *plain) for reason in client.why):
        around = any(a <= at <= b for a, b in windows)
        measured.complaints[f"{'around a swap' if around else 'between swaps'}: {why}"] += 1
    failed = [a for client in streams for a in client.answers if judged(a, options.tokens) == "failed"]
    measured.complaints.update(f"answer: {answer[-300:].decode(errors='replace')}" for answer in failed)
    measured.answers = len(verdicts) + sum(client.answers for client in plain)
    measured.failed = verdicts.count("failed") + sum(c.broken for c in streams) + sum(c.failed for c in plain)
    measured.truncated = verdicts.count("truncated") + sum(client.truncated for client in plain)
    return measured


def _longest(gaps: list[tuple[float, float]], windows: list[tuple[float, float]]) -> list[float]:
    """The longest silence that ended within each window, of any client."""
    return [max((length for at, length in gaps if a <= at <= b), default=0.0) for a, b in windows]


def read_seconds(path: Path) -> float:
    """Median of reading the weight file, which is in the page cache by now."""
    times: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        with (path / "model.safetensors").open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--python", default=".venv-vllm/bin/python", help="interpreter of vLLM's environment")
    parser.add_argument("--layers", type=int, default=0, help="16.8 million bfloat16 parameters each (0: a tiny model)")
    parser.add_argument("--swaps", type=int, default=100, help="(100)")
    parser.add_argument("--streams", type=int, default=16, help="clients that stream (16)")
    parser.add_argument("--plain", type=int, default=16, help="clients that wait for the whole answer (16)")
    parser.add_argument("--tokens", type=int, default=200, help="of an answer (200)")
    parser.add_argument(
        "--think", type=float, default=2.0,
        help="seconds that a client waits between two answers (2); with 0 a tiny model's API process, which has 32 "
        "clients' tokens to write, is behind by seconds, swap or no swap",
    )  # fmt: skip
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two swaps (0.3)")
    parser.add_argument("--bare-every", type=int, default=5, help="swaps between two bare reloads (5)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths = tuple(write_model(directory / f"v{i}", options.layers, options.seed + i) for i in (0, 1))
        size = (paths[0] / "model.safetensors").stat().st_size
        with vllm_engine(options.python, paths[0], *SERVED, log=directory / "log") as url:
            measured = uvloop.run(measure(url, (paths[0], paths[1]), options, directory))
        show(measured, read_seconds(paths[0]), size, options)


def show(measured: Measured, read: float, size: int, options) -> None:
    """Print the table and write the figures."""
    swapped = [outcome for outcome in measured.outcomes if outcome.result == "swapped"]
    total = sorted(outcome.paused_seconds for outcome in swapped)
    bare, worst, quiet = sorted(measured.bare), sorted(measured.worst), sorted(measured.quiet)

    def at(values: list[float], share: float) -> float:
        return 1e3 * values[round(share * (len(values) - 1))]

    figures = {
        "swaps": len(swapped),
        "swaps_failed": len(measured.outcomes) - len(swapped),
        "answers": measured.answers,
        "failed": measured.failed,
        "truncated": measured.truncated,
        "total_vs_reload": statistics.median(total) / statistics.median(bare),
        "total_p50_ms": at(total, 0.5),
        "total_p99_ms": at(total, 0.99),
        "reload_p50_ms": at(bare, 0.5),
        "read_ms": 1e3 * read,
        "gap_p50_ms": at(worst, 0.5),
        "gap_p99_ms": at(worst, 0.99),
        "quiet_gap_p50_ms": at(quiet, 0.5),
        "quiet_gap_p99_ms": at(quiet, 0.99),
        "file_mb": size / 1e6,
    }
    rows = [
        ("pause to resume", at(total, 0.5), at(total, 0.99)),
        ("bare reload_weights", at(bare, 0.5), at(bare, 0.99)),
        ("reading the file", 1e3 * read, ""),
        ("longest silence of a swap", at(worst, 0.5), at(worst, 0.99)),
        ("as long a stretch without", at(quiet, 0.5), at(quiet, 0.99)),
    ]
    title = (
        f"{len(swapped)} swaps of {size / 1e6:.0f} MB under {options.streams} streams and {options.plain} others, ms"
    )
    report.table(title, ("", "p50", "p99"), rows)
    print(
        f"{measured.answers} answers, {measured.failed} failed, {measured.truncated} truncated; "
        f"pause to resume is {figures['total_vs_reload']:.2f} of the bare reload"
    )
    for complaint, count in measured.complaints.most_common(5):
        print(f"{count} failed, {complaint}", file=sys.stderr)
    report.write(options.json, "swap", figures, [options.seed])


if __name__ == "__main__":
    main()
