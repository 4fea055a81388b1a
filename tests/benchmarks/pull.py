"""Weights from the learner's node into a real vLLM: how long the way, the check and the load take, each by itself.

    python -m tests.benchmarks.pull --python .venv-vllm/bin/python --json build/pull.json
    python -m tests.benchmarks.pull --python .venv-vllm/bin/python --layers 12 --json build/pull_200m.json

The learner's server is a process of its own on loopback, its versions signed; the puller is the daemon's. Beside the
pull stand a plain `httpx` download of the same file from the same server and a plain copy, all three synced to disk.
*capped*: at a rate that makes the file take `--capped` seconds. *resumed*: by a new puller, after half of the file had
come. *verified*: the engine's workers read the version and check digests and numbers, while the old one serves.
*applied*: from pause sent to resume answered. Medians of `--repeat`.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import httpx

from actors.messages import Candidate
from actors.ports.errors import WeightsUnavailable
from adapters.engines.swap import perform
from adapters.engines.swap_files import SwapJob
from adapters.engines.vllm import VllmEngine
from adapters.weights.http import HttpPull, PullSettings
from daemon.processes.asgi import serve
from daemon.upkeep.weights import ServerSettings, server
from learner.versions import WEIGHTS, Versions
from tests.benchmarks import report
from tests.benchmarks.swap import served, write_model
from tests.support.keys import key_pair
from tests.support.ports import free_port

BLOCK = 1 << 20
ROWS = {
    "copy": "plain copy",
    "download": "plain httpx download",
    "pull": "pull",
    "resumed": "pull, resumed at half",
    "capped": "pull, rate-capped",
    "verified": "verified by the engine",
    "applied": "applied, pause to resume",
}


@contextlib.contextmanager
def learner(versions: Path) -> Iterator[str]:
    """The learner's server of `versions`; gives its URL."""
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.pull", "--serve", str(versions), "--port", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        report.await_port(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def synced(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def timed(act: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await act()
    return time.perf_counter() - began


class Bench:
    """Both nodes; each measurement brings a version here that is not here yet."""

    def __init__(self, there: Path, here: Path, url: str, candidates: dict[int, Candidate], keys) -> None:
        self.there, self.here, self._url, self.candidates, self._keys = there, here, url, candidates, keys
        self._http = httpx.AsyncClient(trust_env=False)
        self.size = (there / "v000001" / WEIGHTS).stat().st_size
        self.resumed_bytes = 0

    def puller(self, **settings: float) -> HttpPull:
        def check(content: bytes, signature: str) -> str:
            return self._keys.problem("manifest", content, signature)

        told = PullSettings(url=self._url, **{"wait_seconds": 600.0, **settings})
        return HttpPull(told, self.here, check=check, http=self._http)

    async def fetch(self, puller: HttpPull, version: int) -> None:
        candidate = self.candidates[version]
        await puller.fetch(Path(candidate.path), version, candidate.manifest)

    async def pull(self, version: int, **settings: float) -> float:
        self.clear()
        puller = self.puller(**settings)
        return await timed(lambda: self.fetch(puller, version))

    async def resume(self, version: int, seconds: float) -> float:
        """Of a new puller, which knows nothing but what is on disk: it reads that first, for the digest."""
        self.clear()
        half = self.puller(bytes_per_second=round(self.size / seconds), wait_seconds=seconds / 2)
        try:
            await self.fetch(half, version)
        except WeightsUnavailable:
            puller = self.puller()
            took = await timed(lambda: self.fetch(puller, version))
            self.resumed_bytes = puller.counts["bytes"]
            return took
        raise RuntimeError(f"all of it came within {seconds / 2:g} s; give more to --capped")

    async def download(self, version: int) -> None:
        target = self.here.parent / "download"
        async with self._http.stream("GET", f"{self._url}/v{version:06d}/{WEIGHTS}") as answer:
            answer.raise_for_status()
            with target.open("wb") as file:
                async for block in answer.aiter_raw():
                    file.write(block)
        await anyio.to_thread.run_sync(synced, target)
        target.unlink()

    async def copy(self, version: int) -> None:
        def copied() -> None:
            target = self.here.parent / "copy"
            shutil.copyfile(self.there / f"v{version:06d}" / WEIGHTS, target)
            synced(target)
            target.unlink()

        await anyio.to_thread.run_sync(copied)

    def clear(self) -> None:
        shutil.rmtree(self.here, ignore_errors=True)

    async def aclose(self) -> None:
        await self._http.aclose()


async def measure(bench: Bench, url: str, start: Path, options) -> dict[str, list[float]]:
    """Seconds by row."""
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    async with VllmEngine(url) as engine:
        for number in range(options.repeat):
            version = 1 + number % 2
            found["copy"].append(await timed(lambda version=version: bench.copy(version)))
            found["download"].append(await timed(lambda version=version: bench.download(version)))
            cap = round(bench.size / options.capped)
            found["capped"].append(await bench.pull(version, bytes_per_second=cap))
            found["resumed"].append(await bench.resume(version, options.capped))
            found["pull"].append(await bench.pull(version))
            path, manifest = bench.here / f"v{version:06d}", bench.candidates[version].manifest
            job = SwapJob(
                engine=url, path=str(path), version=version, manifest=manifest, result="", last_good=str(start),
                last_version=0, deadline=300.0,
            )  # fmt: skip
            found["verified"].append(
                await timed(lambda path=path, manifest=manifest: engine.prepare(path, like=start, manifest=manifest))
            )
            outcome = await perform(job, engine)
            if outcome.result != "swapped":
                raise RuntimeError(f"{outcome.result}: {outcome.reason}")
            found["applied"].append(outcome.paused_seconds)
            print(f"{number + 1} of {options.repeat} rounds", file=sys.stderr, flush=True)
    await bench.aclose()
    return found


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--python", default=".venv-vllm/bin/python", help="interpreter of vLLM's environment")
    parser.add_argument("--layers", type=int, default=0, help="16.8 million bfloat16 parameters each (0: a tiny model)")
    parser.add_argument("--repeat", type=int, default=5, help="(5)")
    parser.add_argument("--capped", type=float, default=4.0, help="seconds that the capped pull should take (4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", type=Path, help="be the learner's server of this directory; used by the command")
    parser.add_argument("--port", type=int, default=0, help="of that server")
    options = parser.parse_args()
    if options.serve:
        with contextlib.suppress(KeyboardInterrupt):
            anyio.run(serve, server(ServerSettings(), options.serve), ServerSettings(port=options.port))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        key, keys = key_pair(directory / "keys")
        versions, candidates = Versions(directory / "there", key=key), dict[int, Candidate]()
        start = write_model(directory / "start", options.layers, options.seed)
        for number in (1, 2):
            made = write_model(directory / "made", options.layers, options.seed + number)
            versions.write(
                number, 0, lambda aside, made=made: shutil.copyfile(made / WEIGHTS, aside / WEIGHTS) and (), rest=made,
                batch_ids=(), metrics={}, created=time.time(),
            )  # fmt: skip
            candidates[number] = versions.candidate(number)
            shutil.rmtree(made)
        with (
            learner(directory / "there") as weights,
            served(options.python, start, directory / "log") as url,
        ):
            bench = Bench(directory / "there", directory / "here" / "versions", weights, candidates, keys)
            (directory / "here").mkdir()
            found = anyio.run(measure, bench, url, start, options)
        show(found, bench, options)


def show(found: dict[str, list[float]], bench: Bench, options) -> None:
    """Print the table and write the figures."""
    median = {name: statistics.median(times) for name, times in found.items()}
    moved = dict.fromkeys(ROWS, bench.size) | {"resumed": bench.resumed_bytes}
    rows = [
        (text, f"{median[name]:.3f}", f"{min(found[name]):.3f}", f"{max(found[name]):.3f}",
         f"{moved[name] / median[name] / 1e6:,.1f}")
        for name, text in ROWS.items()
    ]  # fmt: skip
    title = f"{bench.size / 1e6:.1f} MB from the learner's node into a vLLM, {options.repeat} rounds, seconds"
    report.table(title, ("", "median", "least", "most", "MB/s"), rows)
    share = bench.resumed_bytes / bench.size
    cap = bench.size / options.capped / 1e6
    print(
        f"the resumed pull asked for {100 * share:.0f} % of the bytes; capped at {cap:.1f} MB/s, "
        f"which makes {options.capped:g} s; a pull takes {median['pull'] / median['download']:.2f} of a download"
    )
    figures = {f"{name}_s": value for name, value in median.items()}
    figures |= {
        "file_mb": bench.size / 1e6,
        "pull_vs_download": median["pull"] / median["download"],
        "capped_vs_wanted": median["capped"] / options.capped,
        "resumed_share": share,
    }
    report.write(options.json, "pull", figures, [options.seed])


if __name__ == "__main__":
    main()
