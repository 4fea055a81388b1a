"""What a ratio of unlike distributions costs: a bandit whose gradient is known exactly.

    python -m tests.benchmarks.sampling --json FILE

64 contexts of 48 tokens, random logits and rewards (1 for a fifth of the tokens), served by a truncated softmax. What
counts is the success of what is served. Every estimator goes through the learner's own loss with its clips, and its
expectation is a sum over all tokens: nothing is noise but the seed. `lag` is in steps of ascent since the tokens were
sampled; `baseline off`: the advantages are 0.1 too high, as where nobody knows exactly what was to be expected.

    full / truncated     the learner's whole softmax over the engine's truncated one
    full / full          both whole, at temperature 1, as with raw log-probs
    present support      truncated as the learner's weights say, the sampled token always inside (what the learner does)
    recorded support     truncated as the engine's weights said

Then grammars: in half of the contexts a mask leaves some of the tokens. The learner cannot see the mask; it leaves out
tokens whose recorded log-prob is more than `FREE` above its own. `elsewhere` is the size of the gradient that is left
where the mask took more than a twentieth, `kept` the share of tokens that train.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from actors.messages import Processing
from learner.loss import policy_loss
from learner.trainers.processing import support
from learner.trainers.staleness import FREE

CONTEXTS, TOKENS = 64, 48
RATE = 2.0
"""Step of ascent on the mean over contexts: some 200 steps to the end of what this policy can learn."""
WAYS = {
    "top_p 0.9": (1.0, Processing(top_p=0.9)),
    "top_p 0.8": (1.0, Processing(top_p=0.8)),
    "top_k 5": (1.0, Processing(top_k=5)),
    "min_p 0.1": (1.0, Processing(min_p=0.1)),
    "T 0.7, top_p 0.8, top_k 20": (0.7, Processing(top_p=0.8, top_k=20)),
}
Estimate = Callable[[Tensor, Tensor], Tensor]
"""Gradient at the logits `(C, V)`, from tokens that other logits sampled."""


def served(logits: Tensor, heat: float, by: Processing, rewards: Tensor, held: Tensor | None = None) -> Tensor:
    """Mean success of what is served. Its derivative holds the support, which is right but where it jumps."""
    inside = support(logits.detach() / heat, by) if held is None else held
    return ((logits / heat).masked_fill(~inside, -torch.inf).softmax(-1) * rewards).sum(-1).mean()


def slope(of: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Gradient of `of` at `logits`."""
    at = logits.detach().requires_grad_()
    (found,) = torch.autograd.grad(of(at), at)
    return found


def estimator(kind: str, heat: float, by: Processing, rewards: Tensor, off: float = 0.0) -> Estimate:
    """Expected gradient of the learner's loss, turned to ascent."""

    def found(logits: Tensor, behaviour: Tensor) -> Tensor:
        held = support(behaviour / heat, by)
        recorded = (behaviour / heat).masked_fill(~held, -torch.inf).log_softmax(-1)
        drawn = recorded.exp()
        baseline = (drawn * rewards).sum(-1, keepdim=True) - off
        old = behaviour.log_softmax(-1) if kind == "full / full" else recorded.masked_fill(~held, 0.0)

        def objective(at: Tensor) -> Tensor:
            scaled = at / heat
            if kind == "full / truncated":
                now = scaled.log_softmax(-1)
            elif kind == "full / full":
                now = at.log_softmax(-1)
            elif kind == "recorded support":
                now = scaled.masked_fill(~held, -torch.inf).log_softmax(-1)
            else:
                inside = support(scaled.detach(), by)
                # Each token with itself inside: log(exp z / (sum of the support + exp z if it is outside)).
                total = scaled.masked_fill(~inside, -torch.inf).logsumexp(-1, keepdim=True)
                now = scaled - torch.where(inside, total, torch.logaddexp(total, scaled))
            now = torch.where(held, now, torch.zeros_like(now))
            bound = torch.full_like(now, 0.2), torch.full_like(now, 0.28)
            return -policy_loss(
                now, old.masked_fill(~held, 0.0), rewards - baseline, *bound, share=drawn * held / CONTEXTS,
                kl_coef=0.0, guided=torch.zeros_like(held),
            ).loss  # fmt: skip

        return slope(objective, logits)

    return found


KINDS = ("full / truncated", "full / full", "present support", "recorded support")


def world(seed: int) -> tuple[Tensor, Tensor]:
    """Logits and rewards."""
    made = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(CONTEXTS, TOKENS, generator=made, dtype=torch.float64)
    return logits, (torch.rand(CONTEXTS, TOKENS, generator=made) < 0.2).double()


def apart(found: Tensor, exact: Tensor) -> dict[str, float]:
    """Direction and size against the exact gradient."""
    cosine = float((found * exact).sum() / (found.norm() * exact.norm()))
    return {"cosine": cosine, "error": float((found - exact).norm() / exact.norm())}


def bandit(seed: int, heat: float, by: Processing) -> list[dict[str, Any]]:
    """Each estimator at several lags, and what 300 steps with it come to."""
    start, rewards = world(seed)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        if kind == "full / full" and heat != 1.0:
            continue
        found = estimator(kind, heat, by, rewards)
        for lag in (0, 4, 16):
            behaviour, now = start.clone(), start.clone()
            for _ in range(lag):
                now = now + RATE * slope(lambda at: served(at, heat, by, rewards), now)
            exact = slope(lambda at: served(at, heat, by, rewards), now)
            rows.append({"kind": kind, "lag": lag, **apart(found(now, behaviour), exact)})
            if lag == 0:
                tilted = estimator(kind, heat, by, rewards, 0.1)(now, behaviour)
                rows.append({"kind": f"{kind}, baseline off", "lag": 0, **apart(tilted, exact)})
        logits = start.clone()
        for _ in range(300):
            logits = logits + RATE * found(logits, logits)
        rows.append({
            "kind": kind, "before": float(served(start, heat, by, rewards)),
            "after": float(served(logits, heat, by, rewards)),
            "entropy": float(torch.distributions.Categorical(logits=logits).entropy().mean()),
        })  # fmt: skip
    return rows


def grammar(seed: int) -> list[dict[str, Any]]:
    """What is told apart without the mask, by lag and limit: the gradient where a mask took little, and elsewhere."""
    start, rewards = world(seed)
    made = torch.Generator().manual_seed(seed + 1000)
    allowed = torch.rand(CONTEXTS, TOKENS, generator=made) < torch.linspace(0.02, 1.0, CONTEXTS)[:, None]
    allowed[CONTEXTS // 2 :] = True
    allowed |= torch.nn.functional.one_hot(start.argmin(-1), TOKENS).bool()  # a grammar always leaves something
    allowed = allowed[torch.randperm(CONTEXTS, generator=made)]
    recorded = start.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    drawn = recorded.exp()
    gain = rewards - (drawn * rewards).sum(-1, keepdim=True)
    rows: list[dict[str, Any]] = []
    for lag in (0, 4, 16):
        now = start.clone()
        for _ in range(lag):
            now = now + RATE * slope(lambda at: served(at, 1.0, Processing(), rewards, allowed), now)
        exact = slope(lambda at: served(at, 1.0, Processing(), rewards, allowed), now)
        left = now.log_softmax(-1).exp().masked_fill(~allowed, 0.0).sum(-1) > 0.95
        for limit in (0.02, FREE, 0.22, float("inf")):
            own = now.log_softmax(-1)
            kept = allowed & (recorded - own <= limit)

            def objective(at: Tensor, kept: Tensor = kept) -> Tensor:
                log_probs = torch.where(kept, at.log_softmax(-1), torch.zeros_like(at))
                bounds = torch.full_like(at, 0.2), torch.full_like(at, 0.28)
                return -policy_loss(
                    log_probs, recorded.masked_fill(~kept, 0.0), gain, *bounds, share=drawn * kept / CONTEXTS,
                    kl_coef=0.0, guided=torch.zeros_like(kept),
                ).loss  # fmt: skip

            found = slope(objective, now)
            rows.append({
                "limit": limit if limit < 1e9 else "none", "lag": lag, **apart(found[left], exact[left]),
                "elsewhere": float(found[~left].norm() / exact[left].norm()),
                "kept": float((drawn * kept).sum() / CONTEXTS),
            })  # fmt: skip
    return rows


def merged(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mean, least and most over seeds of every number; runs have the same rows."""
    keys = ("kind", "lag", "limit")
    return [
        {key: rows[0][key] for key in keys if key in rows[0]}
        | {
            key: [round(of([row[key] for row in rows]), 4) for of in (statistics.fmean, min, max)]
            for key in rows[0]
            if key not in keys
        }
        for rows in zip(*runs, strict=True)
    ]


def main() -> None:
    """Print the table; write it with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(given.seeds)
    result: dict[str, Any] = {
        name: merged([bandit(seed, heat, by) for seed in seeds]) for name, (heat, by) in WAYS.items()
    }
    result["grammar"] = merged([grammar(seed) for seed in seeds])
    for name, rows in result.items():
        print(name)
        for row in rows:
            print("   ", "  ".join(f"{key} {value}" for key, value in row.items()))
    if given.json:
        given.json.write_text(json.dumps({"seeds": list(seeds), **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
