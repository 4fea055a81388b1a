"""`python -m tests.benchmarks.learner --gpu`: the native trainer in bf16 on one GPU, tokens a second and MFU.

Floating-point operations are counted, not measured, and the peak is a data sheet's: see `learner.sizing`. Timed is
`NativeTrainer.update` whole, without a reference. Log-probs of packed rows are compared with those of rows one by one
before anything is timed.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import report
from tests.benchmarks.learner import batch, recorded

LENGTH, ROWS, VOCABULARY = 4096, 16, 151_936
CLOSE = 0.05
"""Nats, in the mean over tokens: bf16 arithmetic in another order."""


def measure(arguments: Any) -> None:
    """Prints the figures; raises SystemExit where there is no GPU, or results disagree."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here: --gpu needs one, and a CUDA build of torch")
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from learner.settings import LearnerSettings
    from learner.sizing import peak_flops, update_flops
    from learner.trainers.micro import Layout
    from learner.trainers.native import NativeTrainer

    name = torch.cuda.get_device_name()
    peak = peak_flops(name)
    torch.manual_seed(arguments.seed)
    # Qwen2.5-0.5B's shape, its output embeddings untied: 0.63 billion parameters.
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=LENGTH, tie_word_embeddings=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        made: Any = Qwen2ForCausalLM(config)
        made.save_pretrained(directory)
        # Names and shapes are all that counting needs; types do not matter to it.
        tensors = {name: ("", tuple(tensor.shape)) for name, tensor in made.state_dict().items()}
        del made
        settings = LearnerSettings(device="cuda", mini_batches=1, kl_coef=0.0, lr=1e-6)
        trainer = NativeTrainer(settings, directory)
    data = batch(ROWS, arguments.seed, shortest=LENGTH, longest=LENGTH, vocabulary=VOCABULARY)
    layout = Layout(data)
    packed = trainer.log_probs(data)
    budget, trainer._policy.budget = trainer._policy.budget, 0
    apart = float(np.abs(packed - trainer.log_probs(data)).mean())
    trainer._policy.budget = budget
    if not apart < CLOSE:
        raise SystemExit(f"void: packed rows differ from single ones by {apart:.3g} nats in the mean")
    data = recorded(data, packed, arguments.seed)
    taken: list[float] = []
    for number in range(arguments.rounds + 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        done = trainer.update(data, seed=number)
        torch.cuda.synchronize()
        if number > 1:  # kernels are chosen and memory is reserved in the first two
            taken.append(time.perf_counter() - begun)
        if done.steps != 1:
            raise SystemExit(f"void: no step was taken: {done.metrics}")
    seconds, tokens = statistics.median(taken), int(layout.inputs.sum())
    operations = update_flops(tensors, layout.inputs, data.tokens)
    figures = {
        "gpu_tokens_per_second": tokens / seconds,
        "gpu_teraflops": operations / seconds / 1e12,
        "gpu_peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "gpu_packed_apart": apart,
    }
    if peak is not None:
        figures["mfu"] = operations / seconds / peak
    rows = [(figure, f"{value:.4g}") for figure, value in figures.items()]
    report.table(f"{name}: {ROWS} rows of {LENGTH} tokens", ["figure", "value"], rows)
    if peak is None:
        print(f"no peak is known for {name}, so no MFU")
    report.write(arguments.json, "learner_gpu", figures, seeds=[arguments.seed])
