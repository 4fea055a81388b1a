"""The demo's model: a Qwen2 of half a million parameters, set up so that it learns to copy within seconds.

It is transformers' own Qwen2, so that the checkpoint is what vLLM and everyone else expects. Only the start differs:
with random weights a model this small does not find the copying of a name from its prompt in any affordable time. The
initialisation is mimetic: it starts from a blurred picture of what trained models look like.
"""

import math
from collections.abc import Mapping

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

EMBEDDING_STD = 0.3
FINAL_NORM = 0.2
"""Start of the last norm's weight: with embeddings this large, the tied head would begin far too sure of itself."""
PREVIOUS_TOKEN_BIAS = 1.5
"""Size of the query and key bias that makes a head attend to the token before."""
INDUCTION_GAIN = 2.0
FAST_FREQUENCIES = 6
"""So many of RoPE's frequencies turn within a few tokens; a head that matches content at any distance goes without."""


def configuration(vocabulary: int) -> dict[str, object]:
    """What goes into config.json, untied as it is served."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "intermediate_size": 256,
        "vocab_size": vocabulary,
        "max_position_embeddings": 1024,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "use_sliding_window": False,
    }


def build(config: dict[str, object], seed: int) -> Qwen2ForCausalLM:
    """A model with a tied head, initialised from `seed`; tied, because it learns to copy much faster so."""
    model = Qwen2ForCausalLM(Qwen2Config(**{**config, "tie_word_embeddings": True}))
    generator = torch.Generator().manual_seed(seed)
    depth = model.config.num_hidden_layers
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                std = EMBEDDING_STD if "embed" in name else parameter.shape[1] ** -0.5
                if "o_proj" in name or "down_proj" in name:
                    std /= math.sqrt(2 * depth)
                parameter.normal_(std=std, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
        model.model.norm.weight.fill_(FINAL_NORM)
        _make_mimetic(model, generator)
    return model


def take_over(
    model: Qwen2ForCausalLM, pieces: Mapping[str, int], old: Qwen2ForCausalLM, old_pieces: Mapping[str, int]
) -> None:
    """Give `model` what `old` has learnt: its layers, and the embedding of each piece that both vocabularies have."""
    state = {name: tensor for name, tensor in old.state_dict().items() if "embed" not in name and "lm_head" not in name}
    model.load_state_dict(state, strict=False)
    shared = [(number, old_pieces[piece]) for piece, number in pieces.items() if piece in old_pieces]
    here, there = (torch.tensor(ids) for ids in zip(*shared, strict=True))
    with torch.no_grad():
        model.model.embed_tokens.weight[here] = old.model.embed_tokens.weight[there]


def _make_mimetic(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Start all heads as weak copying heads that match like with like, and one in each layer for induction.

    Copying: output ~ value transposed. Matching: query ~ key. Induction: a head of layer 0 tells every position what
    stood before it, one in each later layer looks for positions behind a token like the present one. With the drill
    this becomes "what followed the last time", at any distance, in about 100 updates; without it, the drill is learnt
    by counting positions, which breaks as soon as a conversation is longer than the drill. The last layer's head is
    the one that looks up `book:` when the layers below have decided to book.
    """
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    parameters = dict(model.named_parameters())

    def of(layer: int, name: str) -> torch.Tensor:
        return parameters[f"model.layers.{layer}.self_attn.{name}"]

    for layer in range(config.num_hidden_layers):
        of(layer, "o_proj.weight").add_(of(layer, "v_proj.weight").T)
        first = size if layer == 0 else 0
        of(layer, "q_proj.weight")[first:] += of(layer, "k_proj.weight")[first:]

    # A constant query and key, the query turned back by one position of RoPE: their product peaks one token earlier.
    angles = 10000.0 ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
    cos, sin = torch.cat((angles, angles)).cos(), torch.cat((angles, angles)).sin()
    bias = torch.full((size,), PREVIOUS_TOKEN_BIAS)
    half_turned = torch.cat((-bias[size // 2 :], bias[: size // 2]))
    of(0, "k_proj.bias")[:size] = bias
    of(0, "q_proj.bias")[:size] = bias * cos - half_turned * sin
    of(0, "q_proj.weight")[:size] *= 0.1

    # It writes to directions of its own, (d, size); there the later heads' keys read, their queries read the token.
    written = torch.linalg.qr(torch.randn(config.hidden_size, size, generator=generator)).Q
    of(0, "o_proj.weight")[:, :size] = written
    scale = torch.full((size // 2,), INDUCTION_GAIN)
    scale[:FAST_FREQUENCIES] *= 0.1
    scale = torch.cat((scale, scale))[:, None]
    for layer in range(1, config.num_hidden_layers):
        of(layer, "k_proj.weight")[:size] = scale * written.T
        of(layer, "q_proj.weight")[:size] = scale * of(0, "v_proj.weight")[:size]
