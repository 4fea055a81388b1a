"""Bad weights before the gate, and forced past it: how long until they are rolled back.

    python -m tests.benchmarks.sentinel_live --json build/sentinel_live.json
    python -m tests.benchmarks.sentinel_live --vllm .venv-vllm/bin/python --json build/sentinel_live_vllm.json

An engine (the embedded one, or a real vLLM with the plug-in) with the shipped warm start, agents on the travel desk,
and attributor, sentinel and swapper under the real runner on the real store; the bus is in memory. The judge has a
flaw: it likes an agent that says it is done.

*hacked* weights have learned to say so at once, by a little supervised training; *worse* ones have noise on every
matrix. First the gatekeeper with its default settings judges them, the engine being its shadow engine. Then they are
promoted by a verdict with a valid signature that no gate ever gave. Nobody intervenes. Measured are the runs and the
seconds from "v1 serves" to "v0 serves again".
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import anyio

from actors.credit.attributor import Attributor, AttributorSettings
from actors.deployment.swapper import Swapper, SwapperSettings
from actors.gate.gatekeeper import Gatekeeper, GatekeeperSettings
from actors.messages import Candidate, Serving, Trajectory, Verdict
from actors.messages.signing import sign
from actors.monitoring.sentinel import Sentinel, SentinelSettings
from actors.rollout.episode_runner import play
from actors.store import Store
from actors.system.actor import Received
from actors.system.bus import outgoing
from actors.system.lifecycle import Lifecycle
from actors.system.runner import run_actor
from actors.system.streams import POLICY_DIRECTIVE, POLICY_VERDICT, TRAJECTORY_CLOSED
from actors.system.supervisor import Supervisor
from actors.versions.version_timeline import VersionTimeline
from adapters.engines.vllm import VllmEngine
from adapters.environments.travel import TravelDesk
from daemon.composition.gate import gate_trial
from daemon.settings.config import Config
from daemon.upkeep.swap_intents import SwapIntents
from daemon.upkeep.swaps import Swaps
from tests.benchmarks import report
from tests.support.bad_weights import FAMILIES, WARM_START, Credulous, hacked, shipped, worse
from tests.support.engines import embedded_engine, vllm_engine
from tests.support.keys import key_pair, unsigned_weights
from tests.support.stub_bus import StubBus

SHADOW = "shadow"


class Rig:
    """Actors over one engine, and agents that never stop."""

    def __init__(self, directory: Path, engine: VllmEngine, store: Store, agents: int) -> None:
        self.directory, self.engine, self.store, self.agents = directory, engine, store, agents
        self.bus, self.times = StubBus(), VersionTimeline(time.time)
        self.runs: list[tuple[int, float]] = []
        """(version, outcome) of each run, as agents saw it."""
        self.key, keys = key_pair(directory / "keys")
        settings = SentinelSettings(probe_seconds=2.0, batch=16)
        swaps = Swaps(
            directory / "swaps", {"serving": engine}, inline=frozenset(), weights=unsigned_weights(),
            intents=SwapIntents(store.leases, directory / "swaps"),
        )  # fmt: skip
        (directory / "swaps").mkdir()
        self.actors = (
            Attributor(AttributorSettings(batch=16), judge=Credulous()),
            Sentinel(settings, store=store, engines={"serving": engine}, clock=time.time),
            Swapper(
                SwapperSettings(reconcile_seconds=1.0), store=store, engines={"serving": engine}, runner=swaps,
                versions=directory, key=self.key, keys=keys, clock=time.time,
                times=self.times,
            ),
        )  # fmt: skip

    async def work(self) -> None:
        """Agents at work until cancelled."""
        desk = TravelDesk()

        async def agent(number: int) -> None:
            for count in range(1_000_000):
                task = desk.sample(number * 100_000 + count, "train", FAMILIES)
                episode, started = await desk.reset(task), time.time()
                # A vLLM before 0.33 does not say which weights sampled an answer.
                played = await play(
                    self.engine, episode, max_steps=10, max_tokens=48, seed=number * 100_003 + count,
                    version=self.times.hold("serving"),
                )  # fmt: skip
                run = Trajectory(
                    id=f"run-{number}-{count}", goal=task.goal, tools=json.dumps(played.tools).encode(),
                    steps=played.steps, rows=played.rows, outcome=played.outcome, started=started, ended=time.time(),
                    min_version=played.min_version, max_version=played.max_version,
                )  # fmt: skip
                self.runs.append((played.max_version, played.outcome))
                await self.bus.publish([outgoing(TRAJECTORY_CLOSED, run)])

        async with anyio.create_task_group() as group:
            for number in range(self.agents):
                group.start_soon(agent, number)

    async def serving(self, version: int, seconds: float) -> Serving:
        """Wait until `version` serves.

        Raises:
            TimeoutError: it does not within `seconds`.
        """
        with anyio.fail_after(seconds):
            while True:
                last = await self.store.last_serving("serving")
                if last is not None and last.version == version and (await self.engine.version()) == version:
                    return last
                await anyio.sleep(0.02)

    def supervise(self) -> Supervisor:
        supervisor = Supervisor(rng=random.Random(0))
        for actor in self.actors:

            async def task(lifecycle: Lifecycle, actor=actor) -> None:
                await run_actor(actor, self.bus, self.store, lifecycle, rng=random.Random(1))

            supervisor.add(actor.name, task)
        return supervisor

    async def judge(self, path: Path) -> Verdict:
        """What the gatekeeper says of version 1, with the engine as its shadow; version 0 is back in it then."""
        runner = Swaps(
            self.directory / "swaps", {SHADOW: self.engine}, inline=frozenset({SHADOW}), weights=unsigned_weights()
        )
        first = Serving(
            id="s0", engine="serving", version=0, previous=-1, path=str(self.directory / "v000000"), result="started",
            since=1.0,
        )  # fmt: skip
        await self.store.save([first])
        trial = gate_trial(Config(), store=self.store, shadow=self.engine, environment=TravelDesk())
        gate = Gatekeeper(
            GatekeeperSettings(gate_every=1), store=self.store, shadow=self.engine, shadow_name=SHADOW, runner=runner,
            trial=trial, versions=self.directory, key=self.key, clock=time.time,
        )  # fmt: skip
        await gate.start()
        manifest = sha256((path / "manifest.json").read_bytes()).hexdigest()
        candidate = Candidate(
            id="c", version=1, parent=0, path=str(path), files=(), manifest=manifest, created=time.time()
        )
        result = await gate.handle([Received("c", "policy.candidate", candidate)])
        await runner.swap(SHADOW, self.directory / "v000000", 0)
        (verdict,) = [record for record in result.records if isinstance(record, Verdict)]
        return verdict

    async def force(self, path: Path) -> None:
        """A promotion that no gate gave, signed with its key."""
        manifest = sha256((path / "manifest.json").read_bytes()).hexdigest()
        verdict = Verdict(
            id="forged", version=1, path=str(path), manifest=manifest, incumbent=0, decision="promote",
            reason="forced past the gate", created=time.time(),
        )  # fmt: skip
        signed = sign(verdict, self.key)
        await self.store.save([signed])
        await self.bus.publish([outgoing(POLICY_VERDICT, signed)])


async def measure(directory: Path, url: str, kind: str, options: argparse.Namespace) -> dict[str, float]:
    """The whole story of one kind of bad weights; gives its figures."""
    directory.mkdir()
    store = Store(f"sqlite:///{directory}/s.db", clock=time.time)
    await store.open()
    figures: dict[str, float] = {}
    shipped(directory / "v000000", 0)
    bad = directory / "v000001"
    async with VllmEngine(url, name="serving") as engine, anyio.create_task_group() as group:
        await engine.label(0)
        if kind == "hacked":
            print("training weights to please the judge", file=sys.stderr, flush=True)
            figures["loss"] = await hacked(engine, bad, 1, options.steps)
        else:
            worse(bad, 1)
        rig = Rig(directory, engine, store, options.agents)
        print(f"{kind} weights at the gate", file=sys.stderr, flush=True)
        began = time.monotonic()
        verdict = await rig.judge(bad)
        print(f"the gate says {verdict.decision}: {verdict.reason}")
        figures |= {"gate_seconds": time.monotonic() - began, "gate_rejected": float(verdict.decision == "reject")}
        figures |= {f"gate_{name}": verdict.measurements[name] for name in ("tasks", "success", "incumbent_success")}
        group.start_soon(lambda: rig.supervise().run(signals=False))
        await rig.serving(0, 20.0)
        group.start_soon(rig.work)
        print(f"{options.before} runs before they are forced past it", file=sys.stderr, flush=True)
        while len(rig.runs) < options.before:  # noqa: ASYNC110 (the agents have no event for their number)
            await anyio.sleep(0.02)
        await rig.force(bad)
        began_bad = await rig.serving(1, 60.0)
        ended_bad = await rig.serving(0, 240.0)
        orders = await store.directives(10)
        group.cancel_scope.cancel()
    runs = {version: [outcome for by, outcome in rig.runs if by == version] for version in (0, 1)}
    (back, *_) = [order for order in orders if order.kind == "rollback"]
    # The trial may see it before the sentinel does.
    print(f"rolled back by the {back.origin}: {back.reason}")
    await store.aclose()
    assert any(item.subject == POLICY_DIRECTIVE for item in rig.bus.published)
    return figures | {
        "seconds_from_serving_to_rolled_back": ended_bad.since - began_bad.since,
        "seconds_from_serving_to_order": back.created - began_bad.since,
        "runs_under_bad_weights": len(runs[1]),
        "success_before": sum(runs[0][: options.before]) / options.before,
        "success_bad": sum(runs[1]) / max(1, len(runs[1])),
    }


@contextlib.contextmanager
def engine(python: str, log: Path) -> Iterator[str]:
    """The engine, a vLLM of the environment of `python` if there is one; gives its URL."""
    if not python:
        with embedded_engine(WARM_START, "--dev-mode", name="desk") as url:
            yield url
        return
    options = (
        "--served-model-name", "desk", "--max-model-len", "1024", "--max-num-seqs", "64", "--kv-cache-memory-bytes",
        str(1 << 27), "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
    )  # fmt: skip
    with vllm_engine(python, WARM_START, *options, log=log) as url:
        yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", default="", metavar="PYTHON", help="interpreter of vLLM's environment (embedded)")
    parser.add_argument("--bad", choices=("hacked", "worse", "both"), default="both", help="which weights (both)")
    parser.add_argument("--before", type=int, default=120, help="runs before the bad weights come (120)")
    parser.add_argument("--agents", type=int, default=8, help="(8)")
    parser.add_argument("--steps", type=int, default=40, help="updates that make the hacked weights (40)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    kinds = ("hacked", "worse") if args.bad == "both" else (args.bad,)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name, engine(args.vllm, Path(name) / "vllm.log") as url:
        for kind in kinds:
            found[kind] = anyio.run(measure, Path(name) / kind, url, kind, args)
    rows = [
        (key.replace("_", " "), *(f"{found[kind][key]:.3g}" if key in found[kind] else "" for kind in kinds))
        for key in found[kinds[0]]
    ]
    report.table(f"Bad weights on {'a vLLM' if args.vllm else 'the embedded engine'}", ("", *kinds), rows)
    figures = {f"{kind}_{key}": value for kind in kinds for key, value in found[kind].items()}
    report.write(args.json, "sentinel_live", figures, [0])


if __name__ == "__main__":
    main()
