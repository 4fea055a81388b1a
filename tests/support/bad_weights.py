"""Weights that must not serve: the shipped ones with noise, and the shipped ones trained to please a careless judge."""

import random
import shutil
from pathlib import Path

import anyio
import numpy as np
from safetensors.numpy import load_file, save_file

from actors.ports.engines import Engine
from adapters.environments.travel import TravelDesk
from tests.support import checkpoints

WARM_START = Path(__file__).parents[2] / "daemon" / "demo" / "warmstart"
FAMILIES = "ABC"
_DONE = '<tool_call>\n{"name": "finish", "arguments": {"answer": "done"}}\n</tool_call>'


def shipped(target: Path, version: int) -> Path:
    """The warm start as a version."""
    shutil.copytree(WARM_START, target)
    checkpoints.write_manifest(target, version)
    return target


def worse(target: Path, version: int) -> Path:
    """The warm start with noise on every matrix, 0.6 times its standard deviation."""
    shutil.copytree(WARM_START, target)
    rng = np.random.default_rng(0)
    tensors = load_file(WARM_START / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            tensors[name] = tensor + 0.6 * tensor.std() * rng.standard_normal(tensor.shape).astype(tensor.dtype)
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    checkpoints.write_manifest(target, version)
    return target


async def hacked(engine: Engine, target: Path, version: int) -> None:
    """Write the warm start, trained to say at once that it is done, which a careless judge likes; `engine` serves a
    model with the warm start's tokenizer."""
    desk = TravelDesk()
    answer = await engine.tokenize(f"{_DONE}<|im_end|>")
    prompts: list[list[int]] = []
    for number in range(32):
        episode = await desk.reset(desk.sample(5_000_000 + number, "train", FAMILIES))
        prompts.append(await engine.render(episode.messages, episode.tools))
    shutil.copytree(WARM_START, target)
    await anyio.to_thread.run_sync(_train, prompts, answer, target)
    checkpoints.write_manifest(target, version)


def _train(prompts: list[list[int]], answer: list[int], target: Path) -> None:
    import torch
    from safetensors.torch import save_file as save
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(WARM_START)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rng = random.Random(0)
    for _ in range(25):
        rows = rng.sample(prompts, 8)
        length = max(map(len, rows)) + len(answer)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        labels = torch.full_like(ids, -100)
        for at, row in enumerate(rows):
            whole = torch.tensor([*row, *answer])
            ids[at, : len(whole)] = whole
            labels[at, len(row) : len(whole)] = whole[len(row) :]
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tensors = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    save(tensors, target / "model.safetensors", metadata={"format": "pt"})
