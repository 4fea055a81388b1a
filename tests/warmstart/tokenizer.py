"""The demo model's vocabulary: one token for every word and every recurring piece of punctuation of its little world.

The tokenizer must give the same ids wherever it is loaded. transformers' AutoTokenizer replaces the pre-tokenizer of
whatever calls itself qwen2 by Qwen2's own, silently; ids then differ from those that the model was trained on. So
nothing here depends on pre-tokenization: every piece is an added token (matched leftmost, longest first), and whatever
is no piece falls back to single bytes.
"""

import re
from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>")
PIECES = re.compile(
    r"[A-Z][0-9](?![0-9a-z])"  # record ids
    r'|\n\{"name": "|", "arguments": \{\}\}\n|", "arguments": \{"|"\}\}\n'  # the frame of a tool call
    r"| [a-z_]+:(?=[A-Za-z])"  # markers, with the entity right behind them
    r"|\([a-z,]*\)\n"  # parameters in a signature
    r"|_[a-z]+|[A-Z]?[a-z]+| [A-Za-z]+|[0-9]"
    r"|[^A-Za-z0-9_\s]+(?: [^A-Za-z0-9_\s]+)*|\s+"
)


def build(texts: Iterable[str], words: Sequence[str]) -> Tokenizer:
    """A tokenizer whose pieces are those of `texts`, and each of `words` as it is.

    Ids: special tokens, tags, the 256 bytes, then the pieces in the order of their text.
    """
    split = re.compile("|".join(re.escape(mark) for mark in SPECIAL + TAGS))
    pieces = set(words)
    for text in texts:
        for part in split.split(text):
            pieces.update(PIECES.findall(part))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    listed = [*SPECIAL, *TAGS, *alphabet, *sorted(piece for piece in pieces if len(piece) > 1)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(listed)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in SPECIAL])
    # The tags stay visible when special tokens are skipped: tool parsers look for them in the text.
    tokenizer.add_tokens(
        [AddedToken(piece, special=False, normalized=False) for piece in listed[len(SPECIAL) :] if len(piece) > 1]
    )
    return tokenizer


def single(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    """The ids of `words`, each of which must be one token."""
    found = {word: tokenizer.encode(word).ids for word in words}
    if long := {word: len(ids) for word, ids in found.items() if len(ids) != 1}:
        raise ValueError(f"more than one token: {long}")
    return [found[word][0] for word in words]
