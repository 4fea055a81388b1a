"""A chat template and a tokenizer in Qwen2.5's manner, made on the spot: ChatML, tools as JSON, hermes tags, and merges
that cross punctuation and line feeds, which is where cutting a lesson out can go wrong."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

QWEN = Path(__file__).with_name("qwen.jinja").read_text(encoding="utf-8")
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pre-tokenizer: punctuation takes the line feeds after it along."""


def write_qwen(directory: Path, corpus: list[str]) -> Path:
    """tokenizer.json, with merges learnt from `corpus`, and tokenizer_config.json with the template."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")],
    )
    made.train_from_iterator(corpus, trainer)
    made.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    directory.mkdir(parents=True, exist_ok=True)
    made.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": QWEN}))
    return directory
