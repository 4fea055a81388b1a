"""The whole way of the data, timed: tap, spool, NATS, assembler, store, on one machine.

    drain   the daemon is dead while agents make --exchanges calls; how fast it empties the spool once it is there
    live    agents talk at --rate calls/s; how fast calls become rows, and how far behind the last one is
    chaos   the same while nats-server is killed and stopped and the daemon is killed

Every part counts: response ids that agents saw and the store has not (lost), or has twice (doubled), and errors that
agents saw.

    python -m tests.benchmarks.pipeline --exchanges 20000 --json build/pipeline.json
"""

import argparse
import asyncio
import contextlib
import random
import signal
import tempfile
import time
from pathlib import Path

import uvloop

from tests.benchmarks import report
from tests.support.installation import Account
from tests.support.patience import Late, until
from tests.support.pipeline import Agents, Pipeline, pipeline

_PATIENCE = 300.0
BLOWS = (("nats", 0.0), ("nats", 5.0), ("daemon", 0.0), ("daemon", 2.0))
"""Who is stopped for so many seconds, or killed where it is none."""


async def settled(running: Pipeline, agents: Agents) -> None:
    """Until every call is a row, and every run a trajectory; keeps processes alive meanwhile."""

    def done() -> bool:
        running.check()
        return running.rows() >= agents.calls and running.stitched() >= agents.calls

    with contextlib.suppress(Late):  # what has not come by then is lost: the account says so
        await until(lambda: asyncio.to_thread(done), "all calls are in trajectories", _PATIENCE, every=0.2)


async def rows_at(running: Pipeline, wanted: int) -> None:
    await until(lambda: asyncio.to_thread(lambda: running.rows() >= wanted), f"{wanted} rows", _PATIENCE, every=0.25)


async def drain(directory: Path, exchanges: int) -> tuple[float, float, Account]:
    """(calls/s into the spool, rows/s out of it, account)"""
    async with pipeline(directory, daemon=False) as running:
        agents = Agents(running.tap_port)
        began = time.monotonic()
        await agents.talk(exchanges)
        filled = time.monotonic() - began
        await running.start_daemon()
        await rows_at(running, 1)
        first, began = running.rows(), time.monotonic()
        await rows_at(running, agents.calls)
        rate = (agents.calls - first) / (time.monotonic() - began)
        await settled(running, agents)
        return agents.calls / filled, rate, running.account(agents)


async def live(directory: Path, exchanges: int, rate: float) -> tuple[float, float, Account]:
    """(rows/s from the first call to the last row, seconds that the last row is behind its call, account)"""
    async with pipeline(directory) as running:
        agents = Agents(running.tap_port)
        began = time.monotonic()
        await agents.talk(exchanges, per_second=rate)
        ended = time.monotonic()
        await rows_at(running, agents.calls)
        now = time.monotonic()
        await settled(running, agents)
        return agents.calls / (now - began), now - ended, running.account(agents)


async def chaos(directory: Path, exchanges: int, rate: float, seed: int) -> Account:
    """The account after agents have talked through a series of blows."""
    rng = random.Random(seed)
    async with pipeline(directory) as running:
        agents = Agents(running.tap_port)

        async def strike() -> None:
            while True:
                await asyncio.sleep(rng.uniform(1.0, 3.0))
                victim, stopped = rng.choice(BLOWS)
                send = running.nats if victim == "nats" else running.daemon.signal
                print(f"  {agents.calls:6} calls  {running.rows():6} rows  {victim}, {stopped:g} s")
                if not stopped:
                    send(signal.SIGKILL)
                    continue
                send(signal.SIGSTOP)
                await asyncio.sleep(stopped)
                send(signal.SIGCONT)

        async def keep_alive() -> None:
            while True:
                await asyncio.sleep(0.2)
                await asyncio.to_thread(running.check)

        tasks = [asyncio.create_task(strike()), asyncio.create_task(keep_alive())]
        try:
            await agents.talk(exchanges, per_second=rate)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        running.nats(signal.SIGCONT)
        running.daemon.signal(signal.SIGCONT)
        await settled(running, agents)
        return running.account(agents)


async def run(directory: Path, options: argparse.Namespace) -> None:
    filled, drained, first = await drain(directory / "drain", options.exchanges)
    lived, behind, second = await live(directory / "live", options.exchanges, options.rate)
    third = await chaos(directory / "chaos", options.exchanges, options.chaos_rate, options.seed)
    figures = {"fill_per_s": filled, "drain_per_s": drained, "live_per_s": lived, "live_behind_s": behind}
    rows: list[tuple[object, ...]] = []
    for name, rate, account in (
        ("drain", drained, first),
        ("live", lived, second),
        ("chaos", options.chaos_rate, third),
    ):
        told = {key: getattr(account, key) for key in ("exchanges", "lost", "doubled", "split", "client_errors")}
        rows.append((name, rate, *told.values()))
        figures |= {key: figures.get(key, 0) + value for key, value in told.items()}
    report.table("From agents to rows", ("", "per s", "calls", "lost", "doubled", "split", "errors"), rows)
    for name, value in figures.items():
        print(f"{name} {value:.2f}")
    report.write(options.json, "pipeline", figures, [options.seed])


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--exchanges", type=int, default=20_000, help="calls of each part (20000)")
    parser.add_argument("--rate", type=float, default=800.0, help="calls/s of the live part (800)")
    parser.add_argument("--chaos-rate", type=float, default=400.0, help="calls/s while things are killed (400)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(run(Path(directory), options))


if __name__ == "__main__":
    main()
