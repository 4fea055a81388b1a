"""The warm start on disk: HF files that vLLM and the embedded engine load unchanged."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.warmstart import chat


def save(model: Qwen2ForCausalLM, tokenizer: Tokenizer, config: dict[str, Any], directory: Path) -> None:
    """Write weights, configuration, tokenizer and chat template.

    The head is written apart from the embeddings, whether or not it was tied in training: engines refuse to reload a
    tied head in place.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}
    tensors["lm_head.weight"] = model.lm_head.weight.detach().clone().contiguous()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    _write(directory / "config.json", {**config, "tie_word_embeddings": False})
    tokenizer.save(str(directory / "tokenizer.json"))
    _write(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": chat.END,
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": config["max_position_embeddings"],
            "chat_template": chat.template(),
        },
    )


def load(directory: Path) -> tuple[Qwen2ForCausalLM, Tokenizer]:
    """The model (float32, CPU, not training) and the tokenizer of a directory that `save` wrote."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    model = Qwen2ForCausalLM(Qwen2Config(**config))
    model.load_state_dict(load_file(directory / "model.safetensors"))
    return model.eval(), Tokenizer.from_file(str(directory / "tokenizer.json"))


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
