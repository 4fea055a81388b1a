"""The parity table: our loss beside verl's, the native trainer's weights beside the verl trainer's on 1 and 2 ranks.

.venv-verl/bin/python -m tests.verl.parity --json FILE      exits with 1 if a difference is above its tolerance
"""

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from tests.benchmarks import report
from tests.verl import CPU_ENVIRONMENT

os.environ.update(CPU_ENVIRONMENT)
LOSS, WEIGHTS = 1e-6, 2e-5


class Line(NamedTuple):
    """A row of the table."""

    what: str
    cases: int
    quantity: str
    difference: float
    tolerance: float


def losses() -> list[Line]:
    """Over all cases of `oracle.py`."""
    from tests.verl import oracle

    found = {"loss": 0.0, "gradient": 0.0}
    cases = [oracle.case(seed, scale) for scale in oracle.SCALES for seed in oracle.SEEDS]
    for given in cases:
        (loss, gradient), (expected, slope) = oracle.ours(given), oracle.verls(given)
        found["loss"] = max(found["loss"], oracle.difference(loss, expected))
        found["gradient"] = max(found["gradient"], oracle.difference(gradient, slope))
    return [Line("policy loss", len(cases), name, value, LOSS) for name, value in found.items()]


def weights(directory: Path) -> list[Line]:
    """After six updates on one batch file: native, verl on one rank, verl on two with uneven shards."""
    import numpy as np
    import torch

    from learner.trainers.files import load_tensors
    from learner.trainers.micro import Layout
    from learner.trainers.native import NativeTrainer
    from learner.trainers.verl.ranks import join
    from learner.trainers.verl.shards import deal
    from learner.trainers.verl.trainer import VerlTrainer
    from tests.verl.rig import SETTINGS, UPDATES, batch, qwen, two_ranks

    torch.set_num_threads(1)
    model, given = qwen(directory / "model"), batch(seed=7)
    path = directory / "batch.safetensors"
    given.save(path)
    parameters = sum(tensor.numel() for tensor in load_tensors(model / "model.safetensors").values())
    shards = [len(part) for part in deal(Layout(given), np.arange(given.rows), 2)]
    join()
    log_probs, written = {}, {}
    for name, kind in (("native", NativeTrainer), ("one", VerlTrainer)):
        trainer = kind(SETTINGS, model)
        log_probs[name] = trainer.log_probs(given)
        for seed in range(UPDATES):
            trainer.update(given, seed=seed)
        (directory / name).mkdir()
        trainer.save(directory / name)
        written[name] = load_tensors(directory / name / "model.safetensors")
    result = two_ranks("parity", directory / "two", SETTINGS, model=str(model), data=str(path))
    log_probs["two"] = np.array(result["log_probs"], np.float32)
    written["two"] = load_tensors(directory / "two" / "end" / "model.safetensors")
    size = f"{parameters / 1e6:.2f}M parameters, {given.tokens} trained tokens"
    lines = []
    for name, words in (("one", "verl, 1 rank"), ("two", f"verl, 2 ranks ({shards[0]} + {shards[1]} rows)")):
        apart = float(np.abs(log_probs[name] - log_probs["native"]).max())
        lines.append(Line(f"{words} / native, {size}", 1, "log-probs", apart, WEIGHTS))
        far = max(float((written[name][k] - written["native"][k]).abs().max()) for k in written["native"])
        lines.append(Line(f"{words} / native, {size}", UPDATES, "weights after the updates", far, WEIGHTS))
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verl.parity", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        lines = losses() + weights(Path(directory))
    bad = [line for line in lines if not line.difference <= line.tolerance]
    rows = [
        (
            line.what, str(line.cases), line.quantity, f"{line.difference:.1e}", f"{line.tolerance:.0e}",
            "TOO FAR" if line in bad else "ok",
        )
        for line in lines
    ]  # fmt: skip
    report.table(
        "parity", ("what", "cases", "compared", "largest difference", "tolerance", ""), rows, Console(width=140)
    )
    total = sum(line.cases for line in lines if line.quantity == "loss")
    print(f"{total} loss cases; {len(lines) - len(bad)} passed, {len(bad)} failed; {time.monotonic() - began:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps([line._asdict() for line in lines], indent=1))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
