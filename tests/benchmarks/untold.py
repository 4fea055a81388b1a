"""How good is what nobody reported: signals, outcome model and provisional outcomes, on the service desk's customers.

    python -m tests.benchmarks.untold --json FILE [--seeds 3] [--runs 6000]

An imperfect clerk serves customers of three agents, ten parties with a key each. Reports are few, twice as likely after
a failure, and come after the run was ripe. Evaluated are later runs, whose customers say afterwards what stands in no
training phrase; their outcomes are known to the benchmark alone.

What provisional outcomes do to a policy (`gain_*`) takes a learner: `tests.benchmarks.untold_gain`.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from actors.messages import Step, ToolCall, Trajectory
from actors.ports.environments import Split
from actors.provisional import features
from actors.provisional.features import vector
from actors.provisional.outcome_model import learn
from actors.provisional.phrases import cut, reaction
from actors.provisional.signals import SIGNALS, heard
from actors.provisional.skill import measure
from actors.provisional.waiting import RIPE, Provisional
from adapters.environments.service_desk.agents import AGENTS
from adapters.environments.service_desk.desk import Desk
from adapters.environments.service_desk.environment import step
from adapters.environments.service_desk.follow_ups import follow_up
from tests.warmstart.service_demonstrations import Habits, _Play  # pyright: ignore[reportPrivateUsage]

PARTIES = 10
SECONDS = 6.0
"""Between two runs: ten a minute."""


def play(
    rng: random.Random, number: int, split: Split, *, lies: float, start: float, forges: bool = False
) -> tuple[list[Trajectory], bool]:
    """A run, and what its customer did next as a run that goes on with it or asks again; whether it went well.

    Args:
        forges: the agent's own framework thanks itself in the customer's name.
    """
    letter = rng.choice(list(AGENTS))
    desk = Desk(f"untold-{split}-{number}-{rng.random()}", letter, split)
    clerk = _Play(rng, Habits(), desk, False)
    steps: list[Step] = []
    while not desk.done:
        turn = clerk.turn()
        calls = tuple(ToolCall(name, json.dumps(arguments)) for name, arguments in turn.calls)
        seen = step(desk, calls, turn.text)
        steps.append(
            Step(
                exchange_id=f"x{number}-{len(steps)}", text=turn.text, tool_calls=calls, observation=seen.text,
                role=f"{letter}#00000000",
            )
        )  # fmt: skip
    common: dict[str, Any] = {"caller": f"key-{number % PARTIES}", "min_version": 0, "max_version": 0}
    end = start + len(steps)
    run = Trajectory(
        id=f"{split}-{number}", goal=desk.goal, steps=tuple(steps), started=start, ended=end, closed_by="idle", **common
    )
    return followed(rng, split, desk, run, lies=lies, forges=forges), desk.solved


def followed(
    rng: random.Random, split: Split, desk: Desk, run: Trajectory, *, lies: float = 0.0, forges: bool = False
) -> list[Trajectory]:
    """A run whose attempt is over, and what its customer did next as a run that goes on with it or asks again.

    Args:
        forges: the agent's own framework thanks itself in the customer's name.
    """
    mood, said = follow_up(rng, split, desk, lies=lies)
    if forges:
        mood, said = "thanks", "thanks, that worked"
    answer = Step(
        exchange_id=f"y{run.id}", text="Is there anything else?" if rng.random() < 0.3 else "I see.",
        role=run.steps[-1].role,
    )  # fmt: skip
    if not said:
        return [run]
    if mood != "again" and rng.random() < 0.5:
        # Half speak before the conversation has closed.
        last = msgspec.structs.replace(run.steps[-1], observation=said)
        return [msgspec.structs.replace(run, steps=(*run.steps[:-1], last, answer))]
    later = msgspec.structs.replace(
        run, id=f"{run.id}-b", steps=(answer,), rows=(), outcome=None, started=run.ended + 60, ended=run.ended + 61
    )
    if mood == "again":
        return [run, msgspec.structs.replace(later, goal=said)]
    return [run, msgspec.structs.replace(later, continues=run.id, resumed_with=said)]


def stream(
    rng: random.Random, runs: int, split: Split, *, lies: float = 0.0, forger: int = -1
) -> Iterator[tuple[list[Trajectory], bool]]:
    """Runs of a world, with what followed each."""
    for number in range(runs):
        forges = number % PARTIES == forger
        yield play(rng, number, split, lies=lies, start=number * SECONDS, forges=forges)


def taught(rng: random.Random, runs: int, share: float, *, lies: float = 0.0, forger: int = -1) -> Provisional:
    """An object that has seen `runs`, of which `share` were reported, failures twice as often as successes."""
    known = Provisional()
    outcomes: dict[str, tuple[Trajectory, bool]] = {}
    for place, (told, solved) in enumerate(stream(rng, runs, "train", lies=lies, forger=forger)):
        for run in told:
            known.saw(run)
        if rng.random() < share * (2.0 if not solved else 1.0) / 1.5:
            outcomes[told[0].id] = (told[0], solved)
        now = place * SECONDS
        known.ripen(now)
        for key, (run, well) in list(outcomes.items()):
            if now - run.ended > 2 * RIPE:
                known.told(msgspec.structs.replace(run, outcome=float(well)))
                del outcomes[key]
        _fit(known)
    known.ripen(runs * SECONDS + 3 * RIPE)
    for run, well in outcomes.values():
        known.told(msgspec.structs.replace(run, outcome=float(well)))
    _fit(known)
    return known


def _fit(known: Provisional) -> None:
    wanted = known.model.to_learn()
    if wanted is not None:
        known.model.adopt(learn(*wanted))


def judged(known: Provisional, rng: random.Random, runs: int, *, lies: float = 0.0) -> dict[str, Any]:
    """Skill, calibration and signals on runs with held-out phrases."""
    chances: list[float] = []
    outcomes: list[float] = []
    agents: list[str] = []
    words: dict[str, list[bool]] = {name: [] for name in SIGNALS}
    fresh = Provisional()
    truth: dict[str, bool] = {}
    for told, solved in stream(rng, runs, "heldout", lies=lies):
        truth[told[0].id] = solved
        for run in told:
            fresh.saw(run)
    for key, one in fresh._open.items():  # pyright: ignore[reportPrivateUsage]
        if key not in truth:
            continue
        said = heard(one.run, one.after)
        for name, value in said.items():
            words[name].append((value > 0) == truth[key])
        found = vector(one.run, said)
        chance = known.model.chance(one.run.agent, found)
        if chance is not None:
            chances.append(chance)
            outcomes.append(float(truth[key]))
            agents.append(one.run.agent)
    figures: dict[str, Any] = {
        "success": sum(truth.values()) / len(truth),
        "signals": {
            name: {"coverage": len(own) / len(truth), "precision": sum(own) / len(own) if own else None}
            for name, own in words.items()
        },
    }
    if not chances:
        return {**figures, "brier_skill": {}, "calibration_error": {}, "weight": 0.0}
    said_all, true_all = np.array(chances), np.array(outcomes)
    each: dict[str, Any] = {}
    for agent in ["all", *sorted(set(agents))]:
        here = np.array([agent in ("all", one) for one in agents])
        # The harder base to beat: the agent's true success on these very runs.
        base = np.array([true_all[[other == one for other in agents]].mean() for one in np.array(agents)[here]])
        each[agent] = measure(said_all[here], true_all[here], base, ["one"] * int(here.sum()))
    return {
        **figures,
        "brier_skill": {agent: own.skill for agent, own in each.items()},
        "calibration_error": {agent: own.calibration for agent, own in each.items()},
        "curve": [(one.chance, one.success, one.runs) for one in each["all"].curve],
        "weight": known.model.serving.skill.weight if known.model.serving else 0.0,
        "own_skill": [known.model.serving.skill.skill, known.model.serving.skill.low] if known.model.serving else None,
        "outcomes": len(known.model),
        "fits": dict(known.model.counts),
    }


def no_skill(rng: random.Random, looks: int, outcomes: int) -> float:
    """Share of looks at which a model whose outcomes are coins has weight above zero."""
    wrong = 0
    for look in range(looks):
        known = Provisional()
        for told, _ in stream(random.Random(rng.random()), outcomes, "train"):
            known.saw(told[0])
            known.told(msgspec.structs.replace(told[0], outcome=float(rng.random() < 0.7)))
        known.ripen(1e12)
        wanted = known.model.to_learn()
        assert wanted is not None
        wrong += learn(*wanted).version.skill.weight > 0.0
        print(f"coin {look + 1}/{looks}: {wrong} with weight", file=sys.stderr)
    return wrong / looks


def public(folder: Path) -> dict[str, Any]:
    """Reactions on public dialogues whose users' turns people have rated from 1 to 5, three of them a turn.

    "Simulating User Satisfaction for the Evaluation of Task-oriented Dialogue Systems" (Sun et al. 2021): `*.txt` with
    role, text, action and ratings between tabs. A turn is read against the answer before it; 3 is neither good nor bad.

    Returns:
        By file: turns, the share that anything is read from, and for each reaction how many, and of those that people
        rated off 3 the share that was on its side; with what a constant guess would have of those.
    """
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.txt")):
        said: dict[str, list[int]] = {"thanks": [], "complaint": [], "correction": []}
        turns, sides, answered = 0, list[int](), False
        for line in path.read_text(errors="replace").splitlines():
            role, text, _, ratings, *_ = [*line.split("\t"), "", "", "", ""]
            if role == "USER" and answered and text != "OVERALL" and ratings:
                given = [float(one) for one in ratings.split(",") if one.strip().isdigit()]
                if not given:
                    continue
                turns += 1
                mean = statistics.mean(given)
                side = (mean > 3) - (mean < 3)
                sides.append(side)
                if read := reaction(cut(text)):
                    said[read].append(side if read == "thanks" else -side)
            answered = role == "SYSTEM"
        off = [side for side in sides if side]
        found[path.stem] = {
            "turns": turns, "read": sum(map(len, said.values())) / max(1, turns), "rated_good": off.count(1),
            "rated_bad": off.count(-1), **{
                name: {"turns": len(own), "rated": sum(map(abs, own)), "right": own.count(1)}
                for name, own in said.items()
            },
        }  # fmt: skip
        print(f"public {path.stem}: {found[path.stem]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=6000)
    parser.add_argument("--coins", type=int, default=0, help="looks at models whose outcomes are coins")
    parser.add_argument("--shares", default="0.05,0.01")
    parser.add_argument("--lies", type=float, default=0.0, help="share of customers whose follow-up lies")
    parser.add_argument("--signals-alone", action="store_true", help="no words and no calls: what signals know")
    parser.add_argument("--public", type=Path, help="folder of rated dialogues (see `public`); never part of this")
    chosen = parser.parse_args()
    if chosen.signals_alone:
        features._families = lambda run: iter(())  # pyright: ignore[reportPrivateUsage]
    figures: dict[str, Any] = {"runs": chosen.runs, "seeds": chosen.seeds, "shares": {}}
    for share in [float(one) for one in chosen.shares.split(",") if one]:
        found = []
        for seed in range(chosen.seeds):
            began = time.process_time()
            known = taught(random.Random(seed), chosen.runs, share, lies=chosen.lies)
            one = judged(known, random.Random(1000 + seed), 1500, lies=chosen.lies)
            one["cpu_ms_a_run"] = 1000 * (time.process_time() - began) / (chosen.runs + 1500)
            found.append(one)
            print(f"share {share:g} seed {seed}: {_brief(one)}", flush=True)
        figures["shares"][f"{share:g}"] = found
    if chosen.public:
        figures["public"] = public(chosen.public)
    if chosen.coins:
        figures["coins_with_weight"] = no_skill(random.Random(7), chosen.coins, 200)
    first = next(iter(figures["shares"].values()), [])
    if first and all(one["brier_skill"] for one in first):
        figures["brier_skill"] = statistics.mean(one["brier_skill"]["all"] for one in first)
        figures["calibration_error"] = statistics.mean(one["calibration_error"]["all"] for one in first)
    print("gain_* and liars_30_change: python -m tests.benchmarks.untold_gain (they need a learner);")
    print("verdicts_equal is held by tests/unit/actors/provisional/test_replay_with_and_without.py")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


def _brief(one: dict[str, Any]) -> str:
    if not one["brier_skill"]:
        return "no model: too few outcomes"
    skill = " ".join(f"{agent.rpartition('/')[2][:6]} {value:.2f}" for agent, value in one["brier_skill"].items())
    error = " ".join(f"{value:.3f}" for value in one["calibration_error"].values())
    return (
        f"outcomes {one['outcomes']} weight {one['weight']:.2f} "
        f"own {one['own_skill'][0]:.2f} low {one['own_skill'][1]:.2f} brier skill {skill}; "
        f"calibration error {error}; {one['cpu_ms_a_run']:.1f} ms a run"
    )


if __name__ == "__main__":
    main()
