"""Context templates over a long episode: what they cost, whether budgets hold, and whether training sees the same ids.

    python -m tests.benchmarks.contexts [--turns 40] [--budget 2000] [--seed 1] [--json FILE]

One episode a template, on the embedded engine as a process of its own. Its policy reasons now and then, searches, and
drops turns (rightly or wrongly); the environment goes on for ever and, every tenth turn, lets the user speak. Rows:

  causal, reasoning        without a budget that could matter: what all of the history costs
  causal, limited          the same budget as the next ones; it ends where that is full
  sliding, self-managing   and a template of one's own (the goal and the last answer): they go on within the budget

`ids identical`: for each turn, the ids that its tokens are trained behind and the tokens themselves, taken from the
micro-batches that a trainer computes, are those that the engine says it saw and sampled. `off by`: the engine computes
all rows again; the greatest difference to a log-prob recorded in the rollout, nats. `renders` are the requests that
counting costs.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import numpy as np

from actors.messages import floats_array, ids_array, steps_array
from actors.rollout.context import ContextTemplate, append_user
from actors.rollout.context.managing import SelfManaging
from actors.rollout.context.reasoning import Reasoning
from actors.rollout.context.sliding import SlidingWindow
from actors.rollout.episode_runner import Played, play
from adapters.engines.client import EngineClient
from tests.benchmarks import report
from tests.support.contexts import LENGTH, LongEpisode, Recorder, babbler, differences, trained_ids
from tests.support.engines import embedded_engine

ROOM = LENGTH - 1024
COLUMNS = (
    "template", "turns", "ended by", "last prompt", "all prompts", "longest", "budget", "kept", "renders", "rows",
    "tokens in rows", "trained", "ids identical", "off by", "seconds",
)  # fmt: skip


class LastAnswer(ContextTemplate):
    """A template of one's own: the goal, and the last answer in the words of the user."""

    def messages(self, history):
        messages = list(history.opening)
        if history.past:
            append_user(messages, f"so far: {history.past[-1].seen[0]['content']}")
        return messages


def templates(budget: int) -> dict[str, ContextTemplate]:
    """What is compared."""
    return {
        "causal": ContextTemplate(budget=ROOM),
        "causal, limited": ContextTemplate(budget=budget),
        "reasoning": Reasoning(budget=ROOM),
        "sliding": SlidingWindow(budget=budget, turns=8),
        "sliding, stride 4": SlidingWindow(budget=budget, turns=8, stride=4),
        "self-managing": SelfManaging(budget=budget),
        "one's own": LastAnswer(budget=budget),
    }


async def off_by(engine: Recorder, played: Played) -> float:
    """Greatest difference of a recorded log-prob to what the engine computes for the same row, nats."""
    worst = 0.0
    for row in played.rows:
        ids, on = ids_array(row.ids).tolist(), steps_array(row.step) >= 0
        again = await engine.log_probs(ids)
        worst = max(worst, float(np.abs(again[on] - floats_array(row.logprobs)[on]).max()))
    return worst


async def measure(url: str, template: ContextTemplate, turns: int, seed: int) -> dict[str, float | str]:
    """One episode."""
    async with EngineClient(url) as client:
        engine = Recorder(client)
        began = time.perf_counter()
        played = await play(engine, LongEpisode(seed), context=template, max_steps=turns, max_tokens=64, seed=seed)
        seconds = time.perf_counter() - began
        prompts = [len(prompt) for prompt in engine.prompts]
        return {
            "turns": len(prompts),
            "ended_by": played.ending,
            "last_prompt": prompts[-1],
            "all_prompts": sum(prompts),
            "longest": max(prompts),
            "budget": template.budget,
            "kept": max(prompts) <= template.budget,
            "renders": engine.renders,
            "rows": len(played.rows),
            "row_tokens": sum(len(ids_array(row.ids)) for row in played.rows),
            "trained": sum(len(said) for _, said in trained_ids(played).values()),
            "identical": not differences(engine, played),
            "off_by": await off_by(engine, played),
            "seconds": seconds,
        }


async def compare(url: str, turns: int, budget: int, seed: int) -> dict[str, dict[str, float | str]]:
    """All templates, one after the other."""
    return {name: await measure(url, template, turns, seed) for name, template in templates(budget).items()}


def show(found: Mapping[str, Mapping[str, float | str]], turns: int) -> None:
    """The table."""
    rows: list[list[object]] = []
    for name, figures in found.items():
        told: list[object] = [name]
        for key, value in figures.items():
            shown = ("no", "yes")[value] if isinstance(value, bool) else value
            told.append(f"{value:.1e}" if key == "off_by" else shown)
        rows.append(told)
    report.table(f"{turns} turns at most in each context", COLUMNS, rows)


def main() -> None:
    """The command."""
    parser = report.arguments("Context templates over a long episode, on the embedded engine.")
    parser.add_argument("--turns", type=int, default=40, metavar="N", help="of an episode (40)")
    parser.add_argument("--budget", type=int, default=2000, metavar="TOKENS", help="of a prompt (2000)")
    parser.add_argument("--seed", type=int, default=1, help="of environment and sampling (1)")
    arguments = parser.parse_args()
    with TemporaryDirectory() as directory:
        checkpoint = babbler(Path(directory) / "babbler")
        with embedded_engine(checkpoint, "--weight-version", "0") as url:
            found = anyio.run(compare, url, arguments.turns, arguments.budget, arguments.seed)
    show(found, arguments.turns)
    figures = {
        f"{name}/{key}": float(value)
        for name, measured in found.items()
        for key, value in measured.items()
        if not isinstance(value, str)
    }
    report.write(arguments.json, "contexts", figures, [arguments.seed])


if __name__ == "__main__":
    main()
