"""Keys and values of prompts that were seen before: an agent's next prompt begins with its last one and the answer.

Blocks of a few tokens in a bounded least-recently-used table. A block's key holds the number of the block before it, so
equal keys mean equal prefixes from the first token on, without hashes that could collide. Valid for one version of the
weights: whoever changes them clears it.
"""

import itertools
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 16
"""Tokens in a block."""

_Key = tuple[int, tuple[int, ...]]


class PrefixCache:
    """Blocks `(layers, 2, G, BLOCK, D)` by the ids that they and everything before them hold."""

    def __init__(self, tokens: int) -> None:
        """
        Args:
            tokens: how many to remember; 0 remembers nothing.
        """
        self._most = tokens // BLOCK
        self._blocks: OrderedDict[_Key, tuple[int, Tensor]] = OrderedDict()
        self._numbers = itertools.count(1)
        self.asked = 0
        """Prompt tokens that were looked up."""
        self.found = 0
        """Prompt tokens whose keys and values were there."""

    def take(self, ids: Sequence[int], row: Tensor) -> int:
        """Copy what is known of `ids` into a row's cache `(layers, 2, G, length, D)`; returns how many tokens that is.

        The last token is never taken: its hidden state is what the next token is sampled from.
        """
        self.asked += len(ids)
        keys: list[_Key] = []
        blocks: list[Tensor] = []
        before = 0
        for start in range(0, len(ids) - BLOCK, BLOCK):
            key = (before, tuple(ids[start : start + BLOCK]))
            entry = self._blocks.get(key)
            if entry is None:
                break
            keys.append(key)
            before, block = entry
            blocks.append(block)
        if not blocks:
            return 0
        for key in reversed(keys):  # what comes first in a prompt is forgotten last
            self._blocks.move_to_end(key)
        count = len(blocks) * BLOCK
        row[:, :, :, :count] = torch.cat(blocks, dim=3)
        self.found += count
        return count

    def put(self, ids: Sequence[int], row: Tensor) -> None:
        """Remember the full blocks of `ids`, all of which are in a row's cache `(layers, 2, G, length, D)`."""
        before = 0
        for start in range(0, len(ids) - BLOCK + 1, BLOCK):
            key = (before, tuple(ids[start : start + BLOCK]))
            entry = self._blocks.get(key)
            if entry is None:
                if not self._most:
                    return
                while len(self._blocks) >= self._most:
                    self._blocks.popitem(last=False)
                entry = (next(self._numbers), row[:, :, :, start : start + BLOCK].clone())
                self._blocks[key] = entry
            before = entry[0]

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._blocks.clear()

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK
