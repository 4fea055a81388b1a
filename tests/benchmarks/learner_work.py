"""The learner benchmark's two contenders of our own, a process each: the native trainer, and the bare work.

    python -m tests.benchmarks.learner_work native|limit DIRECTORY

For each line on stdin one update from the same weights on, and one JSON line back. The bare work is what no trainer
can leave out, in a loop without bookkeeping: the reference's forward without gradient, forward and backward, clip,
AdamW, on the same packed micro-batches. `task.json` has the settings.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from learner.batch import TrajectoryBatch
from learner.settings import LearnerSettings
from learner.sizing import CPU_BUDGET
from learner.trainers import packing
from learner.trainers.files import load_model
from learner.trainers.micro import Layout
from learner.trainers.native import NativeTrainer
from tests.benchmarks.timing import Timer, answer


def settings(directory: Path) -> LearnerSettings:
    """The defaults, except one optimizer step an update as in the peer, and `task.json`'s."""
    task = json.loads((directory / "task.json").read_text(encoding="utf-8"))
    return LearnerSettings(device="cpu", mini_batches=1, weight_decay=0.0, lr=task["lr"], kl_coef=task["kl_coef"])


def native(directory: Path) -> None:
    """Rounds of the shipped trainer, its guards on."""
    trainer = NativeTrainer(settings(directory), directory)
    batch = TrajectoryBatch.load(directory / "batch.safetensors")
    timer = Timer()
    for number, _ in enumerate(sys.stdin):
        timer.start()
        report = trainer.update(batch, seed=number)
        timer.stop()
        if report.steps != 1:
            raise RuntimeError(f"no step was taken: {report.metrics}")
        answer({name: report.metrics[name] for name in ("loss", "grad_norm")} | timer.figures())


def limit(directory: Path) -> None:
    known = settings(directory)
    torch.set_num_threads(1)
    model, reference = (load_model(directory, torch.float32, torch.device("cpu")) for _ in range(2))
    reference.requires_grad_(False)
    for each in (model, reference):
        packing.use(each)
    batch = TrajectoryBatch.load(directory / "batch.safetensors")
    on = batch.mask > 0
    old, advantage = torch.from_numpy(batch.behaviour[on]), torch.from_numpy(batch.advantages[on])
    optimizer = torch.optim.AdamW(model.parameters(), lr=known.lr, weight_decay=0.0, fused=True)
    layout = Layout(batch)
    # Everything is laid out beforehand: what is timed is arithmetic. The rows' order is that of the first update.
    micros = [
        (*map(torch.from_numpy, (m.ids[None], m.positions[None], m.context, m.target, m.columns)), m.lengths)
        for m in layout.micro_batches(layout.deal(1, 0)[0], CPU_BUDGET)
    ]

    def log_probs(which, micro):
        ids, positions, context, target, _, lengths = micro
        hidden = which.base_model(input_ids=ids, position_ids=positions, use_cache=False, lengths=lengths)[0][0]
        return -F.cross_entropy(which.lm_head(hidden[context]), target, reduction="none")

    timer = Timer()
    for _ in sys.stdin:
        timer.start()
        with torch.no_grad():
            anchors = [log_probs(reference, micro) for micro in micros]
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for micro, anchor in zip(micros, anchors, strict=True):
            now, at = log_probs(model, micro), micro[4]
            ratio, a = (now - old[at]).exp(), advantage[at]
            surrogate = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a)
            apart = anchor - now
            loss = (surrogate + known.kl_coef * (apart.exp() - apart - 1)).sum() / len(old)
            loss.backward()
            total += float(loss.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        timer.stop()
        answer({"loss": total, "grad_norm": norm, **timer.figures()})


if __name__ == "__main__":
    {"native": native, "limit": limit}[sys.argv[1]](Path(sys.argv[2]))
