"""Does it fit? Asked before anything is loaded: an update that runs out of memory may take the machine with it.

settings, config.json -> `sizing` -> beside what the machine, or the GPU, has -> refused with figures and remedies
"""

import os
from pathlib import Path
from typing import Any

import msgspec
import structlog

from learner.checkpoints import Checkpoints
from learner.errors import MemoryTooSmall, ShapeUnknown
from learner.settings import LearnerSettings
from learner.sizing import MODELS, Shape, Training, host_memory, memory, read_shape, training

_log = structlog.get_logger(__name__)
TIGHT = 0.9
"""Of what there is: beyond it a warning is logged. The formulas were off by up to a tenth (docs/measured.md)."""
LEAST_TOKENS = 512
"""Of a micro-batch: below it a row goes alone in any case."""
MOST_GPUS = 64
GIGA = 1e9


def needed(shape: Shape, run: Training) -> float:
    """Bytes at the peak, of the process on a CPU, else on one GPU."""
    return sum(memory(shape, run).values())


def settled(run: Training, shape: Shape, have: float) -> tuple[Training, tuple[str, ...]]:
    """`run` with the settings that make it fit, and their words; as far as settings can.

    Args:
        have: bytes of the machine, or of one GPU.
    """
    words: list[str] = []

    def take(word: str, **changes: Any) -> None:
        nonlocal run
        other = msgspec.structs.replace(run, **changes)
        if needed(shape, run) > have and needed(shape, other) < needed(shape, run):
            words.append(word)
            run = other

    take("train.gradient_checkpointing = true", checkpointing=True)
    tokens = run.tokens
    while tokens > LEAST_TOKENS and needed(shape, msgspec.structs.replace(run, tokens=tokens)) > have:
        tokens //= 2
    take(f"train.micro_tokens = {tokens}", tokens=tokens)
    take("train.kl_coef = 0.0 (no reference model)", reference=False)
    return run, tuple(words)


def remedies(shape: Shape, run: Training, have: float) -> list[str]:
    """What makes an update fit that does not: settings first, then another machine, then another model.

    Args:
        have: bytes of the machine, or of one GPU.
    """
    found: list[str] = []
    changed, words = settled(run, shape, have)
    if needed(shape, changed) <= have:
        return [f"set {' and '.join(words)}: {needed(shape, changed) / GIGA:.1f} GB"] if words else []
    if run.gpus:
        sharded = msgspec.structs.replace(run, trainer="verl", checkpointing=True)
        for gpus in range(run.gpus + run.sequence_parallel, MOST_GPUS + 1, run.sequence_parallel):
            each = needed(shape, msgspec.structs.replace(sharded, gpus=gpus))
            if each <= have:
                found.append(
                    f'take {gpus} such GPUs with train.trainer = "verl" and train.gradient_checkpointing = true: '
                    f"{each / GIGA:.1f} GB on each"
                )
                break
    else:
        found.append(f"take a machine with {needed(shape, run) / TIGHT / GIGA:.0f} GB or more")
    smaller = [name for name, one in MODELS.items() if needed(one, changed) <= have]
    if smaller:
        with_ = f" with {' and '.join(words)}" if words else ""
        found.append(f"take a model no larger than Qwen2.5's {smaller[-1].upper()}{with_}")
    return found


def check(settings: LearnerSettings, state: Path) -> None:
    """Refuse what does not fit, before a byte of it is loaded; MemoryTooSmall has figures, and what makes it fit."""
    checkpoints = Checkpoints(state)
    cursor, _ = checkpoints.look()
    if cursor is not None:
        directory = checkpoints.versions.path(cursor.head)
    elif settings.warm_start:
        directory = Path(settings.warm_start)
    else:
        return  # nothing to begin with: whoever opens the state says so better
    try:
        shape = read_shape(directory)
    except ShapeUnknown as error:
        _log.warning("memory_not_estimated", reason=str(error))
        return
    gpus, of_gpu = _gpus(settings)
    if settings.trainer == "verl" and not gpus:
        return  # toy models, in tests
    run = training(settings, gpus)
    refuse(shape, run, of_gpu if gpus else machine_memory(), str(directory))
    if gpus:
        refuse_host(shape, run, machine_memory(), str(directory))


def refuse(shape: Shape, run: Training, have: float, name: str) -> None:
    """Raise MemoryTooSmall if the machine, or one GPU, has fewer bytes than an update takes."""
    need = needed(shape, run)
    where = "each GPU" if run.gpus > 1 else "the GPU" if run.gpus else "this machine"
    log = _log.bind(model=name, need_gb=round(need / GIGA, 1), have_gb=round(have / GIGA, 1))
    if need > have:
        parts = sorted(memory(shape, run).items(), key=lambda part: -part[1])
        told = ", ".join(f"{what} {size / GIGA:.1f}" for what, size in parts if size >= 0.01 * need)
        ways = "; or ".join(remedies(shape, run, have)) or "no setting makes it fit"
        raise MemoryTooSmall(
            f"{name}: an update takes {need / GIGA:.1f} GB, {where} has {have / GIGA:.1f} GB "
            f"({shape.parameters / GIGA:.2f} billion parameters, {run.tokens} tokens a micro-batch; GB: {told}). "
            f"What helps: {ways}. `evolved plan --model {name}` shows the rest"
        )
    if need > TIGHT * have:
        log.warning("memory_tight", where=where)
    else:
        log.info("memory_estimated", where=where)


def refuse_host(shape: Shape, run: Training, have: float, name: str) -> None:
    """The same of the machine that the GPUs are in, while a version is written."""
    need = sum(host_memory(shape, run).values())
    if need > have:
        raise MemoryTooSmall(
            f"{name}: writing a version takes {need / GIGA:.1f} GB of the machine's memory, which has "
            f"{have / GIGA:.1f} GB: take a machine with {need / TIGHT / GIGA:.0f} GB or more, or a smaller model"
        )


def machine_memory(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Bytes that this process may have: the machine's, or the least that a control group above it allows."""
    found = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::"))
        group = cgroups / line.removeprefix("0::").strip("/")
    except (OSError, StopIteration):
        group = cgroups
    for place in (group, *group.parents):
        try:
            found.append(float((place / "memory.max").read_text()))
        except (OSError, ValueError):  # no limit is the word "max"
            continue
    return min(found)


def _gpus(settings: LearnerSettings) -> tuple[int, float]:
    """GPUs that the trainer will have, and the bytes of one; 0 for a CPU."""
    if settings.device == "cpu":
        return 0, 0.0
    import torch  # seconds, and the learner's process needs it anyway

    if not torch.cuda.is_available():
        return 0, 0.0
    ranks = int(os.environ.get("WORLD_SIZE", "1")) if settings.trainer == "verl" else 1
    return ranks, float(torch.cuda.get_device_properties(0).total_memory)
