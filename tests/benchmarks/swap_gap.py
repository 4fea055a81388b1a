"""What a swap costs an agent that streams: the longest silence between two pieces of an answer, with swaps and without.

    python -m tests.benchmarks.swap_gap --json build/swap_gap.json

An embedded engine, the shipped tap in front of it, clients that stream one answer after the other, and swaps as the
daemon does them: the program of `adapters.engines.swap`, one start of Python each. Before the swaps the same clients
stream for as long without any: what is left of a gap after taking that away is the swap's. Every answer is read again
at the end: each must have all its tokens, and versions that follow each other without a hole.
"""

import asyncio
import contextlib
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import uvloop
from safetensors.numpy import load_file, save_file

from adapters.engines.swap import run_swap
from adapters.engines.swap_files import SwapJob, SwapOutcome
from tests.benchmarks import report
from tests.benchmarks.tapped import tapped
from tests.support import checkpoints
from tests.support.engines import embedded_engine

WARM_START = Path(__file__).parents[2] / "daemon" / "demo" / "warmstart"
PROMPT = "Book a flight to:Oslo for:Mia, please."


def versions(model: Path | None, directory: Path, seed: int) -> tuple[Path, Path]:
    """Two versions of one model: itself, and with a little noise."""
    if model is None:
        return checkpoints.write(directory / "v0", seed), checkpoints.write(directory / "v1", seed + 1)
    for name in ("v0", "v1"):
        shutil.copytree(model, directory / name)
    rng = np.random.default_rng(seed)
    path = directory / "v1" / "model.safetensors"
    noisy = {
        name: (tensor * (1 + 0.01 * rng.standard_normal(tensor.shape))).astype(tensor.dtype)
        for name, tensor in load_file(path).items()
    }
    save_file(noisy, path, metadata={"format": "pt"})
    return directory / "v0", directory / "v1"


class Client:
    """Streams one answer after the other over one connection, and notes when each piece came."""

    def __init__(self, port: int, tokens: int, think: float = 0.0) -> None:
        self._think = think
        body = json.dumps(
            {
                "model": "bench", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens,
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


class Reading:
    """What the answers turn out to be."""

    def __init__(self, clients: list[Client], tokens: int) -> None:
        self.failed = sum(client.broken for client in clients)
        self.answers = self.spanning = 0
        for client in clients:
            for answer in client.answers:
                self.answers += 1
                spans = _spans(answer, tokens)
                self.failed += spans is None
                self.spanning += spans is not None and len(spans) > 1


def _spans(answer: bytes, tokens: int) -> list[dict] | None:
    """Version spans of an answer, None if anything is missing from it."""
    if not answer.startswith(b"HTTP/1.1 200"):
        return None
    lines = [line for line in answer.splitlines() if line.startswith(b"data: {")]
    choices = [choice for line in lines for choice in json.loads(line[6:]).get("choices", ())]
    ids = [token for choice in choices for token in choice.get("token_ids") or ()]
    spans = choices[-1].get("weight_versions") if choices else None
    if len(ids) != tokens or not spans or choices[-1]["finish_reason"] != "length":
        return None
    edges = [0] + [span["end"] for span in spans]
    return spans if [span["start"] for span in spans] == edges[:-1] and edges[-1] == tokens else None


class Measured:
    """Swaps, and the silences with and without them, in seconds."""

    def __init__(self, outcomes: list[SwapOutcome], quiet: list[float], windows: list[list[float]]) -> None:
        self.outcomes, self.quiet = outcomes, quiet
        self.worst = [max(window, default=0.0) for window in windows]
        """Longest silence that ended while a swap ran."""


async def measure(
    engine: str, port: int, paths: tuple[Path, Path], options, directory: Path
) -> tuple[Measured, Reading]:
    """Stream, first without swaps and then with them."""
    clients = [Client(port, options.tokens) for _ in range(options.clients)]
    stop = asyncio.Event()
    tasks = [asyncio.create_task(client.run(stop)) for client in clients]
    await asyncio.sleep(2.0)  # connections, caches, the first answers
    began = time.perf_counter()
    await asyncio.sleep(options.swaps * options.every)
    ended = time.perf_counter()
    outcomes: list[SwapOutcome] = []
    windows: list[tuple[float, float]] = []
    for number in range(1, options.swaps + 1):
        job = SwapJob(
            engine=engine, path=str(paths[number % 2]), version=number, result=str(directory / "swap.json"),
            last_good=str(paths[(number + 1) % 2]), last_version=number - 1,
        )  # fmt: skip
        start = time.perf_counter()
        outcomes.append(await run_swap(job))
        await asyncio.sleep(0.1)  # the silence may end just after the program did
        windows.append((start, time.perf_counter()))
        await asyncio.sleep(options.every)
    stop.set()
    await asyncio.gather(*tasks)
    gaps = [gap for client in clients for gap in client.gaps]
    quiet = [length for at, length in gaps if began <= at <= ended]
    during = [[length for at, length in gaps if a <= at <= b] for a, b in windows]
    return Measured(outcomes, quiet, during), Reading(clients, options.tokens)


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--model", type=Path, help="checkpoint (the demo's warm start, or a random one)")
    parser.add_argument("--direct", action="store_true", help="without the tap")
    parser.add_argument("--clients", type=int, default=8, help="streams at the same time (8)")
    parser.add_argument("--swaps", type=int, default=20, help="(20)")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two swaps (0.5)")
    parser.add_argument("--tokens", type=int, default=300, help="tokens of an answer (300)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = options.model or (WARM_START if (WARM_START / "model.safetensors").exists() else None)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = versions(model, directory, options.seed)
        engine = stack.enter_context(
            embedded_engine(paths[0], "--dev-mode", "--seed", str(options.seed), name="bench")
        )  # fmt: skip
        port = int(engine.rpartition(":")[2])
        if not options.direct:
            port = stack.enter_context(tapped(port, directory / "spool", capture_tokens=True, redaction={})).port
        measured, reading = uvloop.run(measure(engine, port, paths, options, directory))
    show(measured, reading, options)


def show(measured: Measured, reading: Reading, options) -> None:
    """Print the table and write the figures."""
    paused = [outcome.paused_seconds for outcome in measured.outcomes]
    total = [outcome.total_seconds for outcome in measured.outcomes]
    figures = {
        "swap_p50_ms": 1e3 * statistics.median(paused),
        "swap_max_ms": 1e3 * max(paused),
        "swap_total_p50_ms": 1e3 * statistics.median(total),
        "longest_gap_ms": 1e3 * max(measured.worst),
        "longest_gap_p50_ms": 1e3 * statistics.median(measured.worst),
        "gap_without_swap_ms": 1e3 * max(measured.quiet),
        "gap_without_swap_p50_ms": 1e3 * statistics.median(measured.quiet),
        "gap_without_swap_p99_ms": 1e3 * sorted(measured.quiet)[int(0.99 * (len(measured.quiet) - 1))],
        "swaps": len(measured.outcomes),
        "swaps_failed": sum(outcome.result != "swapped" for outcome in measured.outcomes),
        "answers": reading.answers,
        "answers_over_a_swap": reading.spanning,
        "failed": reading.failed,
    }
    rows = [
        ("pause to resume", figures["swap_p50_ms"], figures["swap_max_ms"]),
        ("whole swap, canary included", figures["swap_total_p50_ms"], 1e3 * max(total)),
        ("longest silence of a swap", figures["longest_gap_p50_ms"], figures["longest_gap_ms"]),
        ("silence without swaps", figures["gap_without_swap_p50_ms"], figures["gap_without_swap_ms"]),
    ]
    where = "direct" if options.direct else "through the tap"
    report.table(
        f"{figures['swaps']} swaps under {options.clients} streams {where}, milliseconds", ("", "p50", "max"), rows
    )
    print(
        f"{reading.answers} answers, {reading.spanning} of them over a swap, {reading.failed} failed, "
        f"{figures['swaps_failed']} swaps failed"
    )
    report.write(options.json, "swap_gap", figures, [options.seed])


if __name__ == "__main__":
    main()
