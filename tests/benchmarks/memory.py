"""The learner's estimates beside what was measured: memory of an update, its seconds, the bytes that it writes.

    python -m tests.benchmarks.memory --json build/memory.json

Random Qwen2 models, a fresh process each: one update of the native trainer as it ships (reference, guard and four
mini-batches of two micro-batches), then a version written. Memory is the peak of the resident set, version included,
above that of the same process before it loads the model: interpreter, torch, transformers, and the pages of these that
an update of a model of no size has touched. Beside it stands `learner.sizing`, given the largest micro-batch. Seconds
are the CPU's, on one thread: the rate is taken from the shape that has `rate_from` and held against the others.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from learner.sizing import Training, Work, flops, memory, optimizer_bytes, read_shape, version_bytes
from tests.benchmarks import report
from tests.benchmarks.timing import Timer, answer

REPOSITORY = Path(__file__).parents[2]
MIB = 2**20


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A model and a batch."""

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    tied: bool = False
    rows: int = 8
    length: int = 512
    """Tokens of a row; each is a micro-batch."""
    checkpointing: bool = False
    half: bool = False
    """Its file is in bf16."""
    rate_from: bool = False


CASES = (
    Case(name="4M", layers=6, hidden=192, heads=6, vocabulary=4096, tied=True),
    Case(name="20M", layers=8, hidden=384, heads=6, vocabulary=8192, rate_from=True),
    Case(name="20M, long rows", layers=8, hidden=384, heads=6, vocabulary=8192, length=1024),
    Case(name="60M", layers=12, hidden=512, heads=8, vocabulary=16384, tied=True, length=256),
    Case(name="60M, file in bf16", layers=12, hidden=512, heads=8, vocabulary=16384, tied=True, half=True, length=128),
    Case(
        name="60M, checkpointing", layers=12, hidden=512, heads=8, vocabulary=16384, tied=True, checkpointing=True,
        length=512,
    ),
)  # fmt: skip
WARM = Case(name="none", layers=1, hidden=16, heads=2, vocabulary=64, length=64)


def make(case: Case, directory: Path) -> None:
    """Write the model."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=case.vocabulary, hidden_size=case.hidden, intermediate_size=4 * case.hidden,
        num_hidden_layers=case.layers, num_attention_heads=case.heads, num_key_value_heads=2,
        max_position_embeddings=4096, tie_word_embeddings=case.tied,
    )  # fmt: skip
    made: Any = Qwen2ForCausalLM(config)
    (made.bfloat16() if case.half else made).save_pretrained(directory)


def resident(field: str) -> float:
    """`VmRSS` or `VmHWM` of this process, bytes; the peak of this program alone, not of who started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return float(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def forget_peak() -> None:
    """The peak from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def worker(case: Case, directory: Path) -> None:
    """One update and one version; answers with what they took."""
    import torch

    from learner.settings import LearnerSettings
    from learner.trainers.micro import Layout
    from learner.trainers.native import NativeTrainer
    from tests.benchmarks.learner import batch

    def update(case: Case, directory: Path) -> dict[str, Any]:
        settings = LearnerSettings(
            device="cpu", threads=1, micro_tokens=case.length, gradient_checkpointing=case.checkpointing
        )
        data = batch(case.rows, 0, shortest=case.length, longest=case.length, vocabulary=case.vocabulary)
        # To a random model all tokens are alike.
        sampled = np.where(data.mask > 0, np.float32(-np.log(case.vocabulary)), np.float32(0)).astype(np.float32)
        data = msgspec.structs.replace(data, behaviour=sampled)
        layout = Layout(data)
        dealt = layout.deal(settings.mini_batches, 1)
        micros = [layout.micro_batches(rows, 1) for rows in dealt]
        trainer = NativeTrainer(settings, directory)
        timer.start()
        done = trainer.update(data, seed=1)
        timer.stop()
        peak = resident("VmHWM")
        if done.steps != len(dealt):
            raise RuntimeError(f"{done.steps} of {len(dealt)} steps were taken: {done.metrics}")
        out = directory / "out"
        out.mkdir()
        trainer.save(out)
        trainer.save_state(out)
        return {
            "update": peak,
            "peak": resident("VmHWM"),
            "seconds": timer.figures()["cpu"],
            "steps": len(dealt),
            "tokens": max(len(micro.ids) for each in micros for micro in each),
            "trained": max(len(micro.target) for each in micros for micro in each),
            "accumulates": min(map(len, micros)) > 1,
            "fed": int(layout.inputs.sum()),
            "trained_in_all": data.tokens,
            "version": (out / "model.safetensors").stat().st_size,
            "optimizer": (out / "optimizer.safetensors").stat().st_size,
        }

    torch.set_num_threads(1)
    timer = Timer()
    with tempfile.TemporaryDirectory() as folder:
        make(msgspec.structs.replace(WARM, checkpointing=case.checkpointing), Path(folder))
        update(msgspec.structs.replace(WARM, checkpointing=case.checkpointing), Path(folder))
    base = resident("VmRSS")
    forget_peak()
    answer(update(case, directory) | {"process": base})


def ask(*arguments: object) -> Any:
    """What a process of this module answers.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.memory", *map(str, arguments)],
        capture_output=True, text=True, cwd=REPOSITORY, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"answer"')]
    return json.loads(lines[-1])["answer"] if lines else None


def measure(case: Case) -> dict[str, Any]:
    """One case: what was measured beside what `learner.sizing` says."""
    with tempfile.TemporaryDirectory() as folder:
        directory, text = Path(folder), msgspec.json.encode(case).decode()
        make(case, directory)
        found = ask("--work", text, directory)
        shape = read_shape(directory)
    run = Training(
        tokens=found["tokens"], trained=found["trained"], accumulates=found["accumulates"],
        checkpointing=case.checkpointing,
    )  # fmt: skip
    width = 2 if case.half else 4
    parts = {what: size for what, size in memory(shape, run).items() if "process" not in what}
    predicted, measured = sum(parts.values()), found["peak"] - found["process"]
    work = Work(rows=case.rows, length=round(found["fed"] / case.rows), trained=found["trained_in_all"] / found["fed"])
    return {
        "name": case.name,
        "parameters": shape.parameters,
        "tokens": run.tokens,
        "predicted_mib": predicted / MIB,
        "measured_mib": measured / MIB,
        "error": predicted / measured - 1,
        "update_mib": (found["update"] - found["process"]) / MIB,
        "process_mib": found["process"] / MIB,
        "parts_mib": {what: size / MIB for what, size in parts.items()},
        "seconds": found["seconds"],
        "gigaflops": flops(shape, run, work, found["steps"]) / 1e9,
        "rate_from": case.rate_from,
        "written": found["version"] + found["optimizer"],
        "written_predicted": version_bytes(shape, width) + optimizer_bytes(shape),
    }


def show(shapes: list[dict[str, Any]]) -> dict[str, float]:
    """Print the tables; returns the largest errors."""

    def percent(value: float) -> str:
        return f"{100 * value:+.1f} %"

    report.table(
        "memory above the process, MiB",
        ["model", "parameters", "tokens a micro-batch", "formula", "measured", "error"],
        [
            (one["name"], f"{one['parameters'] / 1e6:.1f}M", one["tokens"], f"{one['predicted_mib']:,.0f}",
             f"{one['measured_mib']:,.0f}", percent(one["error"]))
            for one in shapes
        ],
    )  # fmt: skip
    rate = next((one["gigaflops"] / one["seconds"] for one in shapes if one["rate_from"]), math.nan)
    for one in shapes:
        one["seconds_predicted"] = one["gigaflops"] / rate
        one["seconds_error"] = one["seconds_predicted"] / one["seconds"] - 1
        one["written_error"] = one["written_predicted"] / one["written"] - 1
    report.table(
        f"CPU seconds of an update at {rate:.1f} GFLOP/s, and bytes of its version and optimizer",
        ["model", "GFLOP", "formula", "measured", "error", "formula, MB", "written, MB", "error"],
        [
            (one["name"], f"{one['gigaflops']:,.0f}", f"{one['seconds_predicted']:.1f}", f"{one['seconds']:.1f}",
             "(rate)" if one["rate_from"] else percent(one["seconds_error"]),
             f"{one['written_predicted'] / 1e6:.2f}", f"{one['written'] / 1e6:.2f}",
             f"{100 * one['written_error']:+.2f} %")
            for one in shapes
        ],
    )  # fmt: skip
    return {
        "error_max": max(abs(one["error"]) for one in shapes),
        "seconds_error_max": max(abs(one["seconds_error"]) for one in shapes),
        "written_error_max": max(abs(one["written_error"]) for one in shapes),
        "gigaflops_per_second": rate,
        "process_mib": max(one["process_mib"] for one in shapes),
    }


def main() -> None:
    """See the module's docstring."""
    parser = report.arguments("the learner's estimates beside what was measured")
    parser.add_argument("--only", default="", metavar="NAME", help="cases whose name begins so")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        worker(msgspec.json.decode(arguments.work[0], type=Case), Path(arguments.work[1]))
        return
    shapes: list[dict[str, Any]] = []
    for case in CASES:
        if case.name.startswith(arguments.only):
            shapes.append(measure(case))
            print(json.dumps(shapes[-1]), flush=True)
    figures = show(shapes)
    print(json.dumps({"shapes": len(shapes), **figures}))
    report.write(arguments.json, "memory", figures, seeds=[0], shapes=shapes, error_max=figures["error_max"])


if __name__ == "__main__":
    main()
