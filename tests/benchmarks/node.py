"""What an update costs the learner's disk, and a kill its time: bytes for each byte of weights, seconds to go on.

    python -m tests.benchmarks.node --json FILE

A random Qwen2 of 15M parameters in bf16, on a CPU with one thread, and orders of eight trajectories, once with a full
state beside every version (before) and once with the learner's own `STATE_EVERY` (after). A process of its own makes
the updates and is killed in the midst of the next commit; another goes on, and its state is compared with the first
one's. Bytes are what the process handed to write(2) (`wchar`) during `Updater.apply`; seconds depend on the machine.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from actors.messages import BatchOrder, encode_batch
from learner.checkpoints import Checkpoints
from learner.memory import STATE_EVERY
from learner.service import open_trainer
from learner.settings import LearnerSettings
from learner.trainers import staleness
from learner.update import Updater
from tests.unit.learner.maker import item, row

UPDATES, TRAJECTORIES, TOKENS, VOCABULARY = 12, 8, 16, 16384
SHAPE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 8}


def warm_start(directory: Path) -> Path:
    """Random weights in bf16, as a Hugging Face directory."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=VOCABULARY, num_key_value_heads=8, tie_word_embeddings=False, **SHAPE)
    Qwen2ForCausalLM(config).bfloat16().save_pretrained(directory)
    return directory


def order(directory: Path, number: int, version: int) -> BatchOrder:
    """One order with its file, sampled by `version`."""
    rng = np.random.default_rng(number)
    items = []
    for index in range(TRAJECTORIES):
        steps = np.where(np.arange(TOKENS) < TOKENS // 2, -1, 0).tolist()
        ids = rng.integers(3, VOCABULARY, TOKENS).tolist()
        logprobs = np.where(np.array(steps) < 0, 0.0, -9.7).tolist()
        rows = [row(ids, steps, version=version, logprobs=logprobs)]
        items.append(item(float(index % 2), id=f"t{number}.{index}", group=f"g{number}.{index // 4}", rows=rows))
    data = encode_batch(items)
    path = directory / f"order{number}.batch"
    path.write_bytes(data)
    return BatchOrder(
        id=f"order{number}", path=str(path), sha256=sha256(data).hexdigest(), size=len(data), trajectories=()
    )


def written() -> int:
    """Bytes that this process has handed to write(2)."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def state_of(trainer: Any, directory: Path) -> str:
    """A digest of all that the trainer has: masters, moments, steps."""
    (told,) = trainer.save_state(directory)
    (directory / told.name).unlink()
    return told.sha256


def life(directory: Path, state_every: int, updates: int) -> None:
    """One process: open, tell how that went, make updates, and one more until it is killed."""
    settings = LearnerSettings(
        warm_start=str(directory / "warm"), device="cpu", threads=1, lr=1e-6, kl_coef=0.0, mini_batches=1,
        micro_tokens=TRAJECTORIES * TOKENS,
    )  # fmt: skip
    staleness.LEAST_EFFECTIVE = 0.0  # made-up log-probs are noise
    checkpoints = Checkpoints(directory / "state", state_every=state_every)
    updater = Updater(settings, checkpoints, partial(open_trainer, settings), clock=time.time)
    began = time.perf_counter()
    updater.open()
    opened, bytes_, seconds, updating = time.perf_counter() - began, 0, 0.0, 0.0
    replayed = len(checkpoints.recovery(checkpoints.cursor.head).updates)
    for _ in range(updates):
        head = checkpoints.cursor.head
        one, before, began = order(directory, head, head), written(), time.perf_counter()
        outcome = updater.apply(one)
        if outcome.result != "trained":
            raise RuntimeError(f"order {head}: {outcome.result} {outcome.reason} {outcome.dropped}")
        bytes_, seconds = bytes_ + written() - before, seconds + time.perf_counter() - began
        updating += outcome.metrics["seconds_update"]
    told = {
        "open": opened, "replayed": replayed, "bytes": bytes_, "writing": seconds - updating,
        "state": state_of(updater._ready(), directory),
    }  # fmt: skip

    def stuck(*_: Any, **__: Any) -> None:
        print(json.dumps(told), flush=True)
        time.sleep(3600)

    # Killed in the midst of the next commit: its memory is written, its version is not.
    checkpoints.versions.write = stuck  # pyright: ignore[reportAttributeAccessIssue]
    updater.apply(order(directory, checkpoints.cursor.head, checkpoints.cursor.head))


def run(directory: Path, state_every: int, updates: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A life of `updates` that ends in the midst of the next, and the one after it; what each told."""

    def child(count: int) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.benchmarks.node", "--life", str(directory), str(state_every)]
        with subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                line = next((line for line in iter(process.stdout.readline, "") if line.startswith("{")), "")
            except BaseException:
                process.kill()
                raise
            if not line:
                raise RuntimeError(f"the learner ended with status {process.wait()}")
            os.kill(process.pid, signal.SIGKILL)
        return json.loads(line)

    return child(updates), child(0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Bytes of an update for each byte of weights; seconds after a kill.")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--life", nargs=3, metavar=("DIR", "EVERY", "UPDATES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.life:
        life(Path(arguments.life[0]), int(arguments.life[1]), int(arguments.life[2]))
        return 0
    figures: dict[str, Any] = {"updates": arguments.updates, "state_every": STATE_EVERY}
    for name, state_every in (("before", 1), ("after", STATE_EVERY)):
        with tempfile.TemporaryDirectory(prefix="evolved-node-") as place:
            directory = Path(place)
            weights = (warm_start(directory / "warm") / "model.safetensors").stat().st_size
            first, second = run(directory, state_every, arguments.updates)
        figures["weight_bytes"] = weights
        figures[name] = {
            "bytes_per_update_ratio": round(first["bytes"] / arguments.updates / weights, 3),
            "seconds_writing_per_update": round(first["writing"] / arguments.updates, 2),
            "recovery_seconds": round(second["open"], 2),
            "updates_made_again": second["replayed"],
            "bit_equal": first["state"] == second["state"],
        }
        print(f"{name}: a full state every {state_every}: {figures[name]}", flush=True)
    figures |= figures["after"]
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if figures["bit_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
