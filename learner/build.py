"""`build`: credited trajectories to a `TrajectoryBatch`; what cannot be trained on is left out and counted by reason.

Stripping happens here, on ids: the span of retrieved experience is cut out of a row, so the gradient is taken in the
context that the policy will have in production. No text is rendered or tokenised again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import BatchItem, Lineage, Processing, TokenRow, floats_array, ids_array, steps_array
from learner.batch import LOGPROB_SLACK, TOKENS, TrajectoryBatch, computable
from learner.credit import Credits

T = TypeVar("T", bound=np.generic)
COLDEST = 0.01
"""Lowest temperature that is trained on; below it sampling is as good as greedy, and scaled logits overflow."""
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""The ratio is clipped at 1 - CLIP_LOW and 1 + CLIP_HIGH, DAPO's (arXiv 2503.14476)."""
CLIP_BOOSTED = 0.6
"""CLIP_HIGH of guided tokens with a positive advantage: AgentEvolver's selective boosting."""
OLDEST = 16
"""Updates up to which the staleness of tokens is told apart."""


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `build` must know of the model and the hyper-parameters."""

    vocabulary: int
    """Ids are below it."""
    max_tokens: int
    """Longest row that the model takes, experience cut out."""
    chain: tuple[int, ...]
    """Versions that led to the present weights, the newest last. Staleness is counted along it."""
    newest: int
    """Highest version number ever written; above it lies the future."""
    max_staleness: int
    """Updates that a token may be old; of a guided row half as many."""
    processes: bool = True
    """The trainer can do to its logits what an engine does, beside temperature: truncate them, penalise tokens."""


class Built(msgspec.Struct, frozen=True):
    """What `build` made of a batch."""

    batch: TrajectoryBatch | None
    """None if no row is left."""
    dropped: dict[str, int]
    """Rows left out, by reason."""
    statistics: dict[str, float]
    ages: npt.NDArray[np.int64]
    """`(OLDEST + 2,)`: sampled tokens by their staleness in updates, those dropped for it included; the last entry has
    all that are older. Tokens of a version that was rolled back have no staleness."""
    reasons: dict[str, str] = {}
    """Trajectories with credit of which no row was kept, by id: the reason that most of their rows share."""


class _Row(msgspec.Struct, frozen=True):
    """One row's columns on their way into the batch."""

    columns: dict[str, npt.NDArray[np.generic]]
    guided: bool
    temperature: float
    processing: Processing
    trajectory: int
    staleness: npt.NDArray[np.int64]
    """Per trained token, in updates."""


class _Left(msgspec.Struct, frozen=True):
    """A row that is left out."""

    reason: str


def strip(column: npt.NDArray[T], span: tuple[int, int]) -> npt.NDArray[T]:
    """A row's ids, or any other of its columns, without the half-open `span`."""
    return np.concatenate([column[: span[0]], column[span[1] :]])


def build(items: Sequence[BatchItem], credits: Credits, settings: BuildSettings) -> Built:
    """Pack the rows that have credit; whatever cannot be trained on is left out and counted by reason.

    Reasons: `ragged` (arrays of different lengths), `empty`, `hint_span` (experience that cannot be cut out),
    `temperature`, `processing` (the trainer cannot do to its logits what the engine did), `grammar` (in another context
    its masks cannot be told), `vocabulary`, `bad_logprobs`, `step_outside`, `step_twice` (an earlier row has its
    tokens), `bad_advantage`, `future_version`, `unknown_version`, `too_long`, `stale` (every token too old),
    `all_masked`.
    """
    dropped: Counter[str] = Counter()
    rows: list[_Row] = []
    trajectories: list[str] = []
    ages = np.zeros(OLDEST + 2, np.int64)
    reasons: dict[str, str] = {}
    age_of = _age_of(settings.chain)
    stale_tokens = 0
    for item, advantages in zip(items, credits.advantages, strict=True):
        if advantages is None:
            continue
        trajectory = item.attributed.trajectory
        lost = Counter[str]() if trajectory.rows else Counter(["empty"])
        guided = bool(trajectory.experience_ids)
        steps: set[int] = set()
        before = len(rows)
        for token_row in trajectory.rows:
            found, known, stale = _row(token_row, advantages, guided, len(trajectories), age_of, settings)
            ages += known
            stale_tokens += stale
            if isinstance(found, _Row):
                on = set(np.unique(found.columns["steps"][found.columns["mask"].astype(bool)]).tolist())
                # Trained in two rows, a step would count twice, whatever the rows' weights are.
                found = found if steps.isdisjoint(on) else _Left("step_twice")
                steps |= on
            if isinstance(found, _Left):
                lost[found.reason] += 1
            else:
                rows.append(found)
        dropped += lost
        if len(rows) > before:
            trajectories.append(trajectory.id)
        else:
            reasons[trajectory.id] = lost.most_common(1)[0][0]
    if not rows:
        return Built(None, dict(dropped), {"rows": 0.0, "stale_tokens": float(stale_tokens)}, ages, reasons)
    batch = TrajectoryBatch(
        **{name: np.concatenate([row.columns[name] for row in rows]).astype(dtype) for name, dtype in TOKENS.items()},
        lengths=np.array([len(row.columns["ids"]) for row in rows], np.int64),
        guided=np.array([row.guided for row in rows], np.uint8),
        temperature=np.array([row.temperature for row in rows], np.float32),
        trajectory=np.array([row.trajectory for row in rows], np.int32),
        processing=tuple(row.processing for row in rows) if any(row.processing != Processing() for row in rows) else (),
        trajectories=tuple(trajectories),
        base_version=settings.chain[-1],
    )
    return Built(batch, dict(dropped), _statistics(batch, rows, stale_tokens), ages, reasons)


def _statistics(batch: TrajectoryBatch, rows: Sequence[_Row], stale_tokens: int) -> dict[str, float]:
    """Figures for logs and metrics; advantages are of trained tokens, lengths in tokens."""
    staleness = np.concatenate([row.staleness for row in rows])
    on = batch.mask > 0
    sampled = np.bincount(batch.trajectory, [row.staleness.size for row in rows], minlength=len(batch.trajectories))
    return {
        "rows": float(batch.rows),
        "guided_rows": float(batch.guided.sum()),
        "trajectories": float(len(batch.trajectories)),
        "batch_tokens": float(batch.lengths.sum()),
        "trained_tokens": float(batch.tokens),
        "stale_tokens": float(stale_tokens),
        "staleness_mean": float(staleness.mean()),
        "staleness_max": float(staleness.max()),
        "length_mean": float(batch.lengths.mean()),
        "length_max": float(batch.lengths.max()),
        "sampled_mean": float(sampled.mean()),
        "advantage_mean": float(batch.advantages[on].mean()),
        "advantage_std": float(batch.advantages[on].std()),
        "advantage_min": float(batch.advantages[on].min()),
        "advantage_max": float(batch.advantages[on].max()),
        "surprise_behaviour": float(-batch.behaviour[on].mean()),
    }


def _age_of(chain: Sequence[int]) -> Callable[[int], int]:
    """Staleness of a version in updates; -1 for one that the present weights do not come of.

    Each version is looked up once: rows have thousands of tokens, of few versions.
    """
    lineage, head = Lineage(zip(chain[1:], chain, strict=False)), chain[-1]

    @cache
    def age(version: int) -> int:
        # To a lineage, what lies above all that it knows is news and fresh. Here it was written, and gone back from.
        found = lineage.distance(version, head) if version <= head else None
        return -1 if found is None else found

    return age


def _row(
    row: TokenRow,
    advantages: npt.NDArray[np.float32],
    experienced: bool,
    trajectory: int,
    age_of: Callable[[int], int],
    settings: BuildSettings,
) -> tuple[_Row | _Left, npt.NDArray[np.int64], int]:
    """The row's columns, or why it is left out; its tokens by staleness; and how many of them were too old."""
    none = np.zeros(OLDEST + 2, np.int64)
    try:
        ids, steps = ids_array(row.ids), steps_array(row.step)
        behaviour, versions = floats_array(row.logprobs), ids_array(row.versions)
    except ValueError:
        return _Left("ragged"), none, 0
    if not len(ids) == len(steps) == len(behaviour) == len(versions):
        return _Left("ragged"), none, 0
    if not np.isfinite(row.temperature) or row.temperature < COLDEST:
        return _Left("temperature"), none, 0
    if not computable(row.processing) or not (settings.processes or row.processing.only_grammar):
        return _Left("processing"), none, 0
    start, end = row.hint
    guided = end > start
    if row.processing.grammar and (guided or row.redacted):
        return _Left("grammar"), none, 0
    if (experienced and not guided) or not 0 <= start <= end <= len(ids) or np.any(steps[start:end] >= 0):
        return _Left("hint_span"), none, 0
    if guided:
        ids, steps = strip(ids, row.hint), strip(steps, row.hint)
        behaviour, versions = strip(behaviour, row.hint), strip(versions, row.hint)
    if len(ids) < 2:
        return _Left("empty"), none, 0
    if np.any(ids < 0) or np.any(ids >= settings.vocabulary):
        return _Left("vocabulary"), none, 0
    if len(ids) > settings.max_tokens:
        return _Left("too_long"), none, 0
    if steps.max() >= len(advantages) or steps.min() < -1:
        return _Left("step_outside"), none, 0
    if not np.isfinite(advantages).all():
        return _Left("bad_advantage"), none, 0
    mask = steps >= 0
    mask[0] = False
    sampled = behaviour[mask]
    if not np.isfinite(sampled).all() or np.any(sampled > LOGPROB_SLACK):
        return _Left("bad_logprobs"), none, 0
    own = versions[mask]
    if np.any(own > settings.newest):
        return _Left("future_version"), none, 0
    if np.any(own < 0):
        return _Left("unknown_version"), none, 0
    # A version that is not in the chain was rolled back, or forgotten for its age.
    elsewhere = guided or row.redacted
    limit = settings.max_staleness // 2 if elsewhere else settings.max_staleness
    age = np.full(len(ids), -1, np.int64)
    age[mask] = [age_of(version) for version in own.tolist()]
    known = np.bincount(np.minimum(age[mask & (age >= 0)], OLDEST + 1), minlength=OLDEST + 2).astype(np.int64)
    old = mask & ((age > limit) | (age < 0))
    stale = int(old.sum())
    mask &= ~old
    if not mask.any():
        return _Left("stale" if stale else "all_masked"), known, stale
    credit = np.where(mask, advantages[np.where(mask, steps, 0)], np.float32(0))
    boosted = guided & (credit > 0)
    columns: dict[str, npt.NDArray[np.generic]] = {
        "ids": ids,
        "mask": mask,
        "advantages": credit,
        "behaviour": np.where(mask, behaviour, np.float32(0)),
        "clip_low": np.full(len(ids), CLIP_LOW, np.float32),
        "clip_high": np.where(boosted, np.float32(CLIP_BOOSTED), np.float32(CLIP_HIGH)),
        "versions": versions,
        "steps": steps,
    }
    return _Row(columns, elsewhere, row.temperature, row.processing, trajectory, age[mask]), known, stale
