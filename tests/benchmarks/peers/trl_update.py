"""TRL's GRPOTrainer on the benchmark's batch, its update only; run in an environment of its own (`.venv-trl`).

`trainer.train()` runs as it is; only `_generate_and_score_completions`, which would generate, is replaced by one that
hands out the recorded batch in the form in which TRL pads its own: prompts on the left, completions on the right, to
the longest of the batch, tool output masked by `tool_mask`, recorded log-probs as `old_per_token_logps`. The
reference's log-probs are computed there by TRL's own function, as TRL does. A step is timed from its first
micro-batch to the end of the optimizer's step. What TRL would slow itself down with on a CPU is off: gradient
checkpointing, bf16, logging.
"""

# pyright: reportMissingImports=false
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from datasets import Dataset
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.benchmarks.timing import Timer, answer

GROUP = 8


def padded(rows: list[Any], dtype: torch.dtype, *, left: bool = False) -> torch.Tensor:
    """`(B, longest)`, 0 where padded."""
    width = max(len(row) for row in rows)
    out = torch.zeros(len(rows), width, dtype=dtype)
    for at, row in zip(out, rows, strict=True):
        (at[width - len(row) :] if left else at[: len(row)]).copy_(torch.as_tensor(row, dtype=dtype))
    return out


def columns(path: Path) -> dict[str, torch.Tensor]:
    arrays = load_file(path)
    ends = arrays["lengths"].cumsum()
    rows = [slice(end - n, end) for n, end in zip(arrays["lengths"], ends, strict=True)]
    prompts = [int(arrays["mask"][row].argmax()) for row in rows]

    def completion(name: str) -> list[Any]:
        return [arrays[name][row][prompt:] for row, prompt in zip(rows, prompts, strict=True)]

    prompt = [arrays["ids"][row][:n] for row, n in zip(rows, prompts, strict=True)]
    mask = completion("mask")
    return {
        "prompt_ids": padded(prompt, torch.long, left=True),
        "prompt_mask": padded([[1] * len(ids) for ids in prompt], torch.long, left=True),
        "completion_ids": padded(completion("ids"), torch.long),
        "completion_mask": padded([[1] * len(row) for row in mask], torch.long),
        "tool_mask": padded(mask, torch.long),
        "old_per_token_logps": padded(completion("behaviour"), torch.float32),
        "advantages": torch.tensor([float(arrays["advantages"][row][n]) for row, n in zip(rows, prompts, strict=True)]),
        "num_items_in_batch": torch.tensor(float(arrays["mask"].sum())),
    }


class Peer(GRPOTrainer):
    """A GRPOTrainer that is given its completions."""

    recorded: dict[str, torch.Tensor]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch = dict(self.recorded)
        with torch.no_grad():
            batch["ref_per_token_logps"], *_ = self._get_per_token_logps_and_entropies(
                self.ref_model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
                batch["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
            )
        return batch


class Rounds(TrainerCallback):
    """Waits for a line before each step and answers with what it took."""

    def __init__(self) -> None:
        self.timer = Timer()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not sys.stdin.readline():
            os._exit(0)
        self.timer.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.timer.stop()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        # Logged after the step has ended.
        if logs and "grad_norm" in logs:
            answer({"loss": logs["loss"], "grad_norm": logs["grad_norm"], **self.timer.figures()})


def main() -> None:
    """Arguments: the directory of model and batch, rows of a micro-batch."""
    directory, rows = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    recorded = columns(directory / "batch.safetensors")
    size = len(recorded["advantages"])
    settings = json.loads((directory / "task.json").read_text(encoding="utf-8"))
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(settings["vocabulary"])}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1", unk_token="w0")
    trainer = Peer(
        model=AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa"),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": ["w1"] * (size // GROUP)}),
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=size // rows,
            num_generations=GROUP,
            max_completion_length=recorded["completion_ids"].size(1),
            max_steps=10_000,
            learning_rate=settings["lr"],
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=1.0,
            beta=settings["kl_coef"],
            epsilon=0.2,
            epsilon_high=0.28,
            loss_type="dapo",
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    trainer.recorded = recorded
    trainer.pop_callback("PrinterCallback")
    trainer.add_callback(Rounds())
    trainer.train()


if __name__ == "__main__":
    # Progress and warnings go to stderr, so that stdout carries answers alone.
    main()
