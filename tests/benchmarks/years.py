"""What grows with the years: a daemon on a young store beside one on an old store, by what is asked of it.

The stores are filled with records as actors write them: versions with their verdicts and swaps, orders with their
members, trajectories with calls, labels and feedback, lessons, tasks, dead letters. Then a daemon of its own runs on
each in turn (no engine answers it), and the same requests go to both.

    python -m tests.benchmarks.years --json build/years.json
    python -m tests.benchmarks.years --versions 1000 --trajectories 10000    # in half a minute
"""

import itertools
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import structlog

from actors.messages import (
    Attributed,
    Attribution,
    BatchOrder,
    Candidate,
    Directive,
    Exchange,
    Experience,
    Feedback,
    FileDigest,
    Message,
    Serving,
    Step,
    StepLabel,
    ToolCall,
    Trajectory,
    Verdict,
)
from actors.store import Store
from daemon.settings.tables import Keep
from daemon.upkeep.retention import Retention
from tests.benchmarks import report
from tests.support.installation import Installation
from tests.support.process import listens

DAY = 86400.0
_PAGE = 500
_YOUNG, _REPEATS = 0.01, 9
"""The young store's part of the old one; and how often each request is made."""
_ROUTES = (
    "/api/status", "/api/success", "/api/judge", "/api/trajectories", "/api/trajectories/{run}",
    "/api/versions", "/api/versions/{version}", "/api/dead", "/api/experience",
    "/metrics",
)  # fmt: skip


def records(rng: random.Random, *, versions: int, trajectories: int, now: float) -> Iterator[Message]:
    """A year's worth, the oldest first."""
    day = 365 * DAY
    per_order = max(1, min(32, trajectories // max(1, versions)))
    runs: list[str] = []
    made = 0
    for version in range(1, versions + 1):
        at = now - day * (1 - version / (versions + 1))
        for _ in range(trajectories * version // versions - made):
            made += 1
            yield from _run(rng, f"run-{made:07d}", at - rng.random() * day / versions, version)
            runs.append(f"run-{made:07d}")
        order = f"order-{version:06d}"
        yield BatchOrder(
            id=order, path=f"batches/{order}.safetensors", sha256="0" * 64, size=1 << 20,
            trajectories=tuple(runs[-per_order:]), production=per_order, created=at,
        )  # fmt: skip
        yield Candidate(
            id=f"candidate-{version:06d}", version=version, parent=version - 1, path=f"weights/v{version:06d}",
            files=tuple(FileDigest(f"model-{n}.safetensors", "0" * 64, 1 << 30) for n in range(4)),
            manifest="0" * 64, batch_ids=(order,), metrics={f"figure_{n}": rng.random() for n in range(40)}, created=at,
        )  # fmt: skip
        promoted = rng.random() < 0.5
        yield Verdict(
            id=f"verdict-{version:06d}", version=version, path=f"weights/v{version:06d}", manifest="0" * 64,
            incumbent=version - 1, decision="promote" if promoted else "reject", reason="as it is",
            measurements={f"figure_{n}": rng.random() for n in range(80)}, created=at + 60,
        )  # fmt: skip
        for engine in ("one", "two") if promoted else ():
            yield Serving(
                id=f"serving-{engine}-{version:06d}", engine=engine, version=version, previous=version - 1,
                path=f"weights/v{version:06d}", result="swapped", since=at + 90, paused_seconds=0.4, total_seconds=5,
            )  # fmt: skip
        if version % 20 == 0:
            yield Directive(
                id=f"directive-{version:06d}", kind="rollback", reason="success fell", origin="sentinel",
                created=at + 120, details={"version": str(version)},
            )  # fmt: skip
    for number in range(max(10, versions // 10)):
        yield Experience(
            id=f"lesson-{number:05d}", when_to_use=f"booking trip {number}", content=f"ask for the date first {number}",
            sources=(rng.choice(runs),), state=rng.choice(("active", "retired")), updated=now - rng.random() * day,
        )  # fmt: skip


def _run(rng: random.Random, key: str, at: float, version: int) -> Iterator[Message]:
    calls = [f"{key}-{n}" for n in range(3)]
    for number, call in enumerate(calls):
        yield Exchange(
            id=call, endpoint="/v1/chat/completions", engine="one", model="m", started=at + number, duration=0.5,
            status=200, request=b'{"messages": []}' * 250, response=b'{"choices": []}' * 20, response_id=f"r-{call}",
        )  # fmt: skip
    steps = tuple(
        Step(
            exchange_id=call, response_id=f"r-{call}", text="I look it up",
            tool_calls=(ToolCall("search", '{"q": "x"}', f"c-{call}"),), observation="found " * 40,
        )
        for call in calls
    )  # fmt: skip
    run = Trajectory(
        id=key, goal=f"book trip {key}", steps=steps, outcome=float(rng.random() < 0.6), started=at, ended=at + 4,
        min_version=version - 1, max_version=version - 1, trainable=True,
    )  # fmt: skip
    yield run
    labels = tuple(StepLabel(rng.choice(("GOOD", "BAD"))) for _ in steps)
    yield Attributed(
        id=key, trajectory=run, attribution=Attribution(labels=labels, judge="rules", rubric="r"),
        cluster=f"c{rng.randrange(50)}",
    )  # fmt: skip
    if rng.random() < 0.2:
        yield Feedback(id=f"f-{key}", received=at + 10, trajectory_id=key, outcome=1.0)


async def fill(url: str, found: Iterator[Message]) -> None:
    store = Store(url, clock=time.time)
    await store.open()
    while page := list(itertools.islice(found, _PAGE)):
        await store.save(page)
    await store.aclose()


async def housekeeping(url: str, state: Path, now: float, keep: Keep) -> dict[str, float]:
    """The seconds for which the hourly round keeps every other writer waiting, and those that a small commit takes."""
    store, longest = Store(url, clock=time.time), 0.0
    await store.open()

    async def change(work: Any, *given: Any) -> Any:
        nonlocal longest
        started = time.perf_counter()
        done = await write(work, *given)
        longest = max(longest, time.perf_counter() - started)
        return done

    write, store.change = store.change, change
    # Three days have passed since the last record, so that some are a year old.
    round_ = Retention(keep, store=store, state=state, database=None, clock=lambda: now + 3 * DAY)
    await round_.round()
    commits: list[float] = []
    rng = random.Random(2)
    for number in range(50):
        page = [record for n in range(10) for record in _run(rng, f"late-{time.time_ns()}-{number}-{n}", now, 1)]
        started = time.perf_counter()
        await store.save(page)
        commits.append(time.perf_counter() - started)
    await store.aclose()
    return {"hourly round, longest write": longest, "commit of ten trajectories": statistics.median(commits)}


def measure(here: Installation, **names: str) -> dict[str, float]:
    """Seconds by request, and MB that the daemon holds afterwards."""
    found: dict[str, float] = {}
    with here.running("broker") as broker:
        broker.until(lambda: here.broker_listens)
        with here.running("run") as daemon:
            daemon.until(lambda: daemon.said("system_ready") and listens(here.ports["control"]), 600)
            with httpx.Client(base_url=f"http://127.0.0.1:{here.ports['control']}", timeout=300) as client:
                for route in _ROUTES:
                    times: list[float] = []
                    for _ in range(_REPEATS):
                        started = time.perf_counter()
                        client.get(route.format(**names)).raise_for_status()
                        times.append(time.perf_counter() - started)
                    found[f"GET {route}"] = statistics.median(times)
            status = Path(f"/proc/{daemon.process.pid}/status").read_text()
            found["daemon MB"] = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return found


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--versions", type=int, default=10_000, metavar="N", help="in the old store (%(default)s)")
    parser.add_argument("--trajectories", type=int, default=150_000, metavar="N", help="in it (%(default)s)")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, share in (("young", _YOUNG), ("old", 1.0)):
            versions, runs = max(10, int(asked.versions * share)), max(10, int(asked.trajectories * share))
            here, now = Installation(Path(place) / name), time.time()
            state, url = here.config.state, here.config.store_url
            state.mkdir(mode=0o700)
            anyio.run(fill, url, records(random.Random(1), versions=versions, trajectories=runs, now=now))
            rows[name] = measure(here, run=f"run-{runs // 2:07d}", version=str(versions // 2))
            rows[name] |= anyio.run(housekeeping, url, state, now, here.config.keep)
    young, old = rows.values()
    report.table(
        f"seconds: {asked.versions:,} versions, {asked.trajectories:,} trajectories, beside {_YOUNG:.0%} of them",
        ("", *rows, "ratio"),
        [(name, f"{young[name]:,.3f}", f"{old[name]:,.3f}", f"{old[name] / young[name]:,.1f}") for name in old],
    )
    report.write(asked.json, "years", {f"{store}, {what}": n for store in rows for what, n in rows[store].items()}, [1])


if __name__ == "__main__":
    main()
