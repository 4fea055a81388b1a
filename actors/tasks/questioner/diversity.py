"""How different the tasks of a set are from each other: kinds of goal, sequences of tools, and their entropy."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from actors.kinds.clusters import cluster_of
from actors.messages import Task
from actors.ports.reference_calls import SyntheticTaskSpec


class Diversity(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one set of tasks."""

    tasks: int
    goals: int
    """Different texts."""
    clusters: int
    """Different goals, but for names and numbers."""
    worlds: int
    tools: int
    """Different tools in the references."""
    sequences: int
    """Different whole sequences of tools."""
    bigrams: int
    """Different pairs of tools, one right after the other."""
    trigrams: int
    sequence_entropy: float
    """Of the sequences of tools, bits: log2 of as many as are equally frequent."""
    bigram_entropy: float
    calls: float
    """Mean calls of a reference."""


def diversity(tasks: Sequence[Task]) -> Diversity:
    """The figures of `tasks`; those that are not self-made are left out."""
    specs = [(task, spec) for task in tasks if (spec := SyntheticTaskSpec.of(task)) is not None]
    sequences = [tuple(call.name for call in spec.reference) for _, spec in specs]
    bigrams = Counter(pair for names in sequences for pair in itertools.pairwise(names))
    trigrams = {three for names in sequences for three in zip(names, names[1:], names[2:], strict=False)}
    return Diversity(
        tasks=len(specs),
        goals=len({task.goal for task, _ in specs}),
        clusters=len({cluster_of(task.goal) for task, _ in specs}),
        worlds=len({msgspec.json.encode(spec.base, order="deterministic") for _, spec in specs}),
        tools=len({name for names in sequences for name in names}),
        sequences=len(set(sequences)),
        bigrams=len(bigrams),
        trigrams=len(trigrams),
        sequence_entropy=entropy(Counter(sequences)),
        bigram_entropy=entropy(bigrams),
        calls=sum(map(len, sequences)) / len(sequences) if sequences else 0.0,
    )


def entropy(counts: Counter[tuple[str, ...]]) -> float:
    """Shannon entropy of `counts`, bits."""
    total = sum(counts.values())
    # `+ 0.0`: one kind alone has entropy 0, not -0.
    return -sum(count / total * math.log2(count / total) for count in counts.values()) + 0.0 if total else 0.0
