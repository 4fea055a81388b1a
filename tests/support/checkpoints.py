"""Tiny Qwen2 checkpoints in HF form, made in milliseconds, that the embedded engine and vLLM serve alike.

    python -m tests.support.checkpoints DIR     writes DIR/a, DIR/b (random weights) and DIR/scripted

All have one tokenizer and one architecture, so that any can be swapped for any other. `scripted` answers every prompt
with the same tool call, token by token, whatever came before.
"""

import hashlib
import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from learner.versions import tensor_shapes

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CALL = (
    "<tool_call>", '\n{"name": "', "search", '", "arguments": {"', "to", '": "', "Oslo", '"}}\n', "</tool_call>",
)  # fmt: skip
"""What `scripted` says before it ends."""
TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- for tool in tools %}
{{- tool['function']['name'] + '(' + tool['function']['parameters']['properties'] | join(',') + ')\\n' }}
{%- endfor %}{{ '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}
{%- for call in message['tool_calls'] or [] %}
{{- '<tool_call>\\n{"name": "' + call['function']['name'] + '", "arguments": ' }}
{{- call['function']['arguments'] | tojson + '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""
HIDDEN, LAYERS, HEADS, KV_HEADS, SIZE, INNER = 64, 2, 2, 1, 32, 96


def tokenizer() -> Tokenizer:
    """Bytes, and whole tokens for the tags and words of the script."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in CALL])
    return made


def _config(vocabulary: int, end: int, length: int) -> dict[str, object]:
    """config.json"""
    return {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": INNER,
        "vocab_size": vocabulary, "max_position_embeddings": length, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "float32", "eos_token_id": end,
        "use_sliding_window": False,
    }  # fmt: skip


def tensors(vocabulary: int, seed: int) -> dict[str, np.ndarray]:
    """Random weights whose next token depends on what came before."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32)

    made = {
        "model.embed_tokens.weight": normal(vocabulary, HIDDEN, scale=8.0),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": normal(vocabulary, HIDDEN, scale=1.5),
    }
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, rows in (("q", HEADS * SIZE), ("k", KV_HEADS * SIZE), ("v", KV_HEADS * SIZE)):
            made[f"{layer}self_attn.{name}_proj.weight"] = normal(rows, HIDDEN)
            made[f"{layer}self_attn.{name}_proj.bias"] = normal(rows)
        made[f"{layer}self_attn.o_proj.weight"] = normal(HIDDEN, HEADS * SIZE, scale=2.0)
        made[f"{layer}mlp.gate_proj.weight"] = normal(INNER, HIDDEN)
        made[f"{layer}mlp.up_proj.weight"] = normal(INNER, HIDDEN)
        made[f"{layer}mlp.down_proj.weight"] = normal(HIDDEN, INNER, scale=2.0)
        made[f"{layer}input_layernorm.weight"] = np.ones(HIDDEN, np.float32)
        made[f"{layer}post_attention_layernorm.weight"] = np.ones(HIDDEN, np.float32)
    return made


def _script(made: dict[str, np.ndarray], tokens: Tokenizer) -> None:
    """Make weights say the call: each token follows from the one before it alone."""
    for name in made:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            made[name][:] = 0.0
    said = [tokens.encode("\n").ids[0], *(tokens.token_to_id(text) for text in (*CALL, "<|im_end|>"))]
    embeddings, head = made["model.embed_tokens.weight"], made["lm_head.weight"]
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    head[:] = 0.0
    for before, after in itertools.pairwise(said):
        head[after] += 6.0 * embeddings[before]


def write(directory: Path, seed: int, *, scripted: bool = False, length: int = 1024) -> Path:
    """A checkpoint in `directory` for so many tokens, the same for the same seed."""
    directory.mkdir(parents=True)
    tokens = tokenizer()
    size = tokens.get_vocab_size()
    made = tensors(size, seed)
    if scripted:
        _script(made, tokens)
    save_file(made, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(_config(size, tokens.token_to_id("<|im_end|>"), length)))
    tokens.save(str(directory / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False, "model_max_length": length, "chat_template": TEMPLATE,
    }  # fmt: skip
    (directory / "tokenizer_config.json").write_text(json.dumps(about))
    return directory


def tie(directory: Path, *, written_out: bool = False) -> Path:
    """Have a checkpoint's head share the embeddings; `written_out` is the same model with the head in the file."""
    path = directory / "model.safetensors"
    made = load_file(path)
    del made["lm_head.weight"]
    made["model.embed_tokens.weight"] = (made["model.embed_tokens.weight"] / 4).astype(np.float32)  # a head's scale
    if written_out:
        made["lm_head.weight"] = made["model.embed_tokens.weight"].copy()
    save_file(made, path, metadata={"format": "pt"})
    settings = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(settings | {"tie_word_embeddings": not written_out}))
    return directory


def make(directory: Path, *, layers: int, hidden: int, heads: int, vocabulary: int) -> None:
    """A model of any size with random weights, for what the learner expects an update to take."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=2, max_position_embeddings=4096,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(directory)


def write_manifest(directory: Path, version: int = 1) -> None:
    """manifest.json over the files that are there."""
    files = [
        {"name": p.name, "sha256": hashlib.sha256(p.read_bytes()).hexdigest(), "size": p.stat().st_size}
        for p in sorted(directory.iterdir())
    ]
    content = {
        "version": version,
        "parent": 0,
        "files": files,
        "tensors": tensor_shapes(directory / "model.safetensors"),
    }
    (directory / "manifest.json").write_text(json.dumps(content))


def spoil(directory: Path, how: str) -> None:
    """Break a checkpoint: missing, unknown, shape, dtype, nan, overflow, truncated, config, tied, digest or path."""
    path = directory / "model.safetensors"
    name = "model.layers.1.mlp.up_proj.weight"
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
        return
    if how == "path":
        shutil.rmtree(directory)
        return
    if how == "digest":
        write_manifest(directory)
        how = "changed"
    if how in ("config", "tied"):
        settings = json.loads((directory / "config.json").read_text())
        settings |= {"num_attention_heads": 4} if how == "config" else {"tie_word_embeddings": True}
        (directory / "config.json").write_text(json.dumps(settings))
        return
    made = load_file(path)
    match how:
        case "missing":
            del made[name]
        case "unknown":
            made["model.layers.9.mlp.up_proj.weight"] = made[name]
        case "shape":
            made[name] = np.ascontiguousarray(made[name][:-1])
        case "dtype":
            made[name] = made[name].astype(np.float16)
        case "nan":
            made[name][3, 4] = np.nan
        case "changed":
            made[name][3, 4] += 1.0
        case "overflow":  # every number is finite, what the layer makes of them is not
            for part in ("gate", "up"):
                made[f"model.layers.0.mlp.{part}_proj.weight"][:] = 3e38
        case _:
            raise ValueError(how)
    save_file(made, path, metadata={"format": "pt"})


def write_all(directory: Path) -> None:
    """The three checkpoints."""
    write(directory / "a", 1)
    write(directory / "b", 2)
    write(directory / "scripted", 3, scripted=True)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
