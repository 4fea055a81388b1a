"""A real installation from the README's steps, without a sandbox, at an ordinary rate: does it go on learning?

    python -m tests.benchmarks.standstill.installation --minutes 60 --json build/hour.json --plot build/hour.png

Broker, tap, daemon, learner and two embedded engines as processes of their own; the settings are the README's and every
other default, but for the learning rate that the README names for this tiny model. Agents on the travel desk begin so
many runs a minute at random and report a share of them. At two thirds of the time somebody freezes, rolls back and
thaws.

Success is counted on all runs, reported or not, from the agents' own journal.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from daemon.demo.agents import AgentSettings
from tests.support.installation import Installation
from tests.support.ports import free_port

MODEL = Path("daemon/demo/warmstart")
LOOK = 10.0
"""Seconds between two looks at the daemon."""
WINDOW = 50
"""Runs of a point of the curve."""


class Sample(msgspec.Struct):
    """What the daemon said at one moment."""

    minute: float
    serving: int
    trained: int
    state: str
    sentence: str


class Story(msgspec.Struct, kw_only=True):
    """What came of it."""

    minutes: float
    per_minute: float
    feedback: float
    delay: float
    seed: int
    runs: int
    reported: int
    failed: int
    trained_on: int
    served: list[tuple[float, int]]
    """Minute and version of each swap."""
    rolled_back: float
    """Minute of the rollback, -1 without."""
    next_promotion: float
    """Minutes from the rollback to the next new version that served, -1 if none did."""
    curve: list[tuple[float, float]]
    """Minute and success of each `WINDOW` runs."""
    counts: dict[str, int]
    samples: list[Sample]


def _engine(installation: Installation, port: int) -> subprocess.Popen[bytes]:
    log = (installation.directory / f"engine-{port}.log").open("ab")
    command = [
        sys.executable, "-m", "daemon.cli", "engine", "--model", str(MODEL), "--port", str(port),
        "--served-model-name", "desk", "--threads", "1", "--dev-mode",
    ]  # fmt: skip
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False


def _await(url: str, seconds: float = 120.0) -> None:
    """
    Raises:
        TimeoutError: nobody answers.
    """
    end = time.monotonic() + seconds
    while not _answers(url):
        if time.monotonic() > end:
            raise TimeoutError(f"no answer at {url} for {seconds:g} s; look at the logs beside it")
        time.sleep(0.5)


def story(options: argparse.Namespace, console: Console) -> Story:
    """Install, work, roll back, work on, and count."""
    directory = Path(options.directory or tempfile.mkdtemp(prefix="standstill-"))
    serving, shadow = free_port(), free_port()
    installation = Installation(
        directory,
        engines={
            "serving": {"url": f"http://127.0.0.1:{serving}"},
            "shadow": {"url": f"http://127.0.0.1:{shadow}"},
        },
        tap={"upstream": f"http://127.0.0.1:{serving}"},
        assembler={"processed_logprobs": ["serving"]},
        learner={"warm_start": str(MODEL.absolute()), "lr": 3e-4, "threads": 1},
    )
    ports, journal = installation.ports, directory / "agents.jsonl"
    control = f"http://127.0.0.1:{ports['control']}"
    agents = AgentSettings(
        tap=f"http://127.0.0.1:{ports['tap']}", journal=str(journal), seed=options.seed,
        first_task=options.seed * 10_000_000, per_minute=options.per_minute, feedback=options.feedback,
        feedback_delay=options.delay, think=0.5,
    )  # fmt: skip
    samples: list[Sample] = []
    rolled_back = -1.0
    with ExitStack() as stack:
        engines = [_engine(installation, port) for port in (serving, shadow)]
        for engine in engines:
            stack.callback(engine.wait, 20)
            stack.callback(engine.terminate)
        for port in (serving, shadow):
            _await(f"http://127.0.0.1:{port}/health")
        for name in ("broker", "tap", "run", "learner"):
            stack.enter_context(installation.running(name))
        _await(f"{control}/api/status")
        command = [sys.executable, "-m", "daemon.demo.agents", msgspec.json.encode(agents).decode()]
        at_work = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        stack.callback(at_work.wait, 60)
        stack.callback(at_work.terminate)
        began = time.time()
        end = began + options.minutes * 60
        turn = began + options.minutes * 40 if options.rollback else float("inf")
        while time.time() < end:
            time.sleep(LOOK)
            if time.time() >= turn and samples and samples[-1].serving > 0:
                turn = float("inf")
                for order in ("freeze", "rollback", "thaw"):
                    done = installation.run(order, "--reason", "the benchmark's turn")
                    console.print(f"{order}: {(done.stdout or done.stderr).strip().splitlines()[:1]}")
                rolled_back = (time.time() - began) / 60
            samples.append(_look(control, (time.time() - began) / 60, samples))
            last = samples[-1]
            where = f"serves v{last.serving}, trained v{last.trained}"
            console.print(f"{last.minute:5.1f} min: {where}, {last.state}: {last.sentence}", highlight=False)
        success = _json(f"{control}/api/success") or {}
        status = _json(f"{control}/api/status") or {}
    return _told(options, samples, rolled_back, success, status, journal, began)


def _look(control: str, minute: float, before: list[Sample]) -> Sample:
    status = _json(f"{control}/api/status")
    if status is None:
        return msgspec.structs.replace(before[-1], minute=minute) if before else Sample(minute, 0, 0, "?", "")
    learning = status.get("learning") or {}
    return Sample(
        minute,
        (status.get("serving") or {}).get("version", 0),
        status.get("trained", 0),
        learning.get("state", "?"),
        learning.get("sentence", ""),
    )


def _json(url: str) -> Any:
    try:
        answer = httpx.get(url, timeout=20.0)
        return answer.json() if answer.status_code == 200 else None
    except (httpx.TransportError, ValueError):
        return None


def _told(
    options: argparse.Namespace,
    samples: list[Sample],
    rolled_back: float,
    success: dict[str, Any],
    status: dict[str, Any],
    journal: Path,
    began: float,
) -> Story:
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    episodes = [line for line in lines if line["event"] == "episode"]
    points = [episodes[at : at + WINDOW] for at in range(0, len(episodes) - WINDOW + 1, WINDOW)]
    curve = [((runs[-1]["time"] - began) / 60, sum(run["outcome"] for run in runs) / WINDOW) for runs in points]
    served = [
        ((swap["time"] - began) / 60, swap["version"])
        for swap in success.get("swaps", [])
        if swap["result"] == "swapped"
    ]
    after: list[float] = []
    seen = 0
    for minute, version in served:
        if rolled_back >= 0 and minute > rolled_back and version > seen:
            after.append(minute - rolled_back)
        seen = max(seen, version)
    counts = status.get("counts", {})
    return Story(
        minutes=options.minutes, per_minute=options.per_minute, feedback=options.feedback, delay=options.delay,
        seed=options.seed, runs=len(episodes), reported=sum(line["event"] == "feedback" for line in lines),
        failed=sum(line["event"] in ("failed", "feedback_failed") for line in lines),
        trained_on=(status.get("curator") or {}).get("ordered_production", 0), served=served, rolled_back=rolled_back,
        next_promotion=min(after, default=-1.0), curve=curve, counts=counts, samples=samples,
    )  # fmt: skip


def draw(told: Story, path: Path) -> None:
    """Version served and success over the minutes."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, above = plt.subplots(figsize=(9, 4.5))
    if told.curve:
        above.plot(
            *zip(*told.curve, strict=True), marker="o", color="tab:green", label=f"success, {WINDOW} runs a point"
        )
    above.set(ylim=(0, 1), xlabel="minutes", ylabel="success")
    below = above.twinx()
    steps = [(0.0, 0), *told.served, (told.minutes, told.served[-1][1] if told.served else 0)]
    below.step(*zip(*steps, strict=True), where="post", color="tab:blue", label="version that serves")
    below.set(ylabel="version that serves", ylim=(0, None))
    if told.rolled_back >= 0:
        above.axvline(told.rolled_back, color="tab:red", linestyle=":", label="rollback")
    figure.legend(loc="upper left", bbox_to_anchor=(0.1, 0.9))
    above.set_title(f"{told.per_minute:g} runs a minute, {told.feedback:.0%} reported, seed {told.seed}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--per-minute", type=float, default=20.0, help="runs that begin a minute")
    parser.add_argument("--feedback", type=float, default=0.5, help="share of runs that are reported")
    parser.add_argument("--delay", type=float, default=5.0, help="seconds from a run's end to its report, on average")
    parser.add_argument("--no-rollback", dest="rollback", action="store_false")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", default="", help="kept; a temporary one by default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options, console = parser.parse_args(), Console()
    told = story(options, console)
    table = Table("figure", "value", title="an installation without a sandbox")
    for name, value in (
        ("runs, reported, trained on", f"{told.runs}, {told.reported}, {told.trained_on}"),
        ("requests or reports that failed", str(told.failed)),
        ("versions that served", " ".join(f"v{version}@{minute:.0f}" for minute, version in told.served)),
        ("success, first and last point", f"{told.curve[0][1]:.2f}, {told.curve[-1][1]:.2f}" if told.curve else "-"),
        ("minutes from the rollback to the next promotion", f"{told.next_promotion:.1f}"),
    ):
        table.add_row(name, value)
    console.print(table)
    if options.plot:
        draw(told, options.plot)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))


if __name__ == "__main__":
    main()
