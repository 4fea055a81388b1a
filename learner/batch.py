"""`TrajectoryBatch`: one update's token rows, packed without padding, as every trainer takes them.

    BatchItems + Credits -> `build` (checks, staleness, stripping) -> TrajectoryBatch -> trainer, or one file

Stripping happens here, on ids: the span of retrieved experience is cut out of a row, so the gradient is taken in the
context that the policy will have in production. No text is rendered or tokenised again.
"""

import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from actors.messages import BatchItem, TokenRow, floats_array, ids_array, steps_array
from learner.credit import Credits
from learner.errors import BatchFileInvalid

T = TypeVar("T", bound=np.generic)
SCHEMA = 1
LOGPROB_SLACK = 1e-3
"""Log-probs above 0 by less than this are rounding of a lower precision; by more, they are no log-probs."""

_TOKENS: dict[str, str] = {
    "ids": "int32", "mask": "uint8", "advantages": "float32", "behaviour": "float32", "clip_low": "float32",
    "clip_high": "float32", "versions": "int32", "steps": "int16",
}  # fmt: skip
_ROWS: dict[str, str] = {"lengths": "int64", "guided": "uint8", "temperature": "float32", "trajectory": "int32"}


class TrajectoryBatch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """B rows of N tokens in all; row b has tokens `offsets[b]` to `offsets[b + 1]`."""

    ids: npt.NDArray[np.int32]
    """`(N,)`, experience cut out."""
    mask: npt.NDArray[np.uint8]
    """`(N,)`, 1 on tokens to be trained; never on a row's first, which has no context."""
    advantages: npt.NDArray[np.float32]
    """`(N,)`, the step's advantage on its tokens, 0 elsewhere."""
    behaviour: npt.NDArray[np.float32]
    """`(N,)` recorded log-probs of the policy that sampled, nats; for guided rows under the *unstripped* context."""
    clip_low: npt.NDArray[np.float32]
    """`(N,)`, the ratio is clipped at 1 - clip_low."""
    clip_high: npt.NDArray[np.float32]
    """`(N,)`, the ratio is clipped at 1 + clip_high."""
    versions: npt.NDArray[np.int32]
    """`(N,)`, weight version that sampled the token, -1 elsewhere."""
    steps: npt.NDArray[np.int16]
    """`(N,)`, step that sampled the token, -1 elsewhere."""
    lengths: npt.NDArray[np.int64]
    """`(B,)` tokens."""
    guided: npt.NDArray[np.uint8]
    """`(B,)`, 1 where experience was cut out: the behaviour log-probs are of another context."""
    temperature: npt.NDArray[np.float32]
    """`(B,)` that the row was sampled at."""
    trajectory: npt.NDArray[np.int32]
    """`(B,)` index into `trajectories`."""
    trajectories: tuple[str, ...]
    """Ids of the trajectories that rows came from."""
    base_version: int
    """Weights that the batch was prepared against."""
    order: str = ""
    """Id of the order."""

    @property
    def rows(self) -> int:
        """B."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Tokens to be trained, R."""
        return int(self.mask.sum())

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """`(B + 1,)`."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    def save(self, path: Path) -> None:
        """Write one safetensors file; under its name it is whole or absent.

        Raises:
            OSError: disk full, no permission.
        """
        header = {
            "schema": str(SCHEMA),
            "trajectories": json.dumps(self.trajectories),
            "base_version": str(self.base_version),
            "order": self.order,
        }
        data = save({name: getattr(self, name) for name in (*_TOKENS, *_ROWS)}, metadata=header)
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "TrajectoryBatch":
        """Read a file that `save` wrote.

        Raises:
            BatchFileInvalid: no such file, truncated, another schema, or arrays that do not fit together.
        """
        try:
            with safe_open(path, "numpy") as file:
                header: dict[str, str] = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError) as error:
            raise BatchFileInvalid(f"{path.name}: {error}") from error
        if header.get("schema") != str(SCHEMA):
            raise BatchFileInvalid(f"{path.name}: schema {header.get('schema')!r}, this learner reads {SCHEMA}")
        for name, dtype in (_TOKENS | _ROWS).items():
            if name not in arrays or arrays[name].dtype != dtype or arrays[name].ndim != 1:
                raise BatchFileInvalid(f"{path.name}: {name} is missing or not one-dimensional {dtype}")
        try:
            batch = cls(
                **{name: arrays[name] for name in (*_TOKENS, *_ROWS)},
                trajectories=tuple(json.loads(header["trajectories"])),
                base_version=int(header["base_version"]),
                order=header["order"],
            )
        except (KeyError, ValueError) as error:
            raise BatchFileInvalid(f"{path.name}: header: {error}") from error
        batch.check()
        return batch

    def check(self) -> None:
        """Whether the arrays fit together and every number can be computed with.

        Raises:
            BatchFileInvalid: names the array.
        """
        n = int(self.lengths.sum()) if len(self.lengths) else 0
        if np.any(self.lengths < 2):
            raise BatchFileInvalid("lengths: a row needs two tokens")
        for name in _TOKENS:
            if len(getattr(self, name)) != n:
                raise BatchFileInvalid(f"{name}: {len(getattr(self, name))} entries, the rows have {n} tokens")
        for name in _ROWS:
            if len(getattr(self, name)) != self.rows:
                raise BatchFileInvalid(f"{name}: {len(getattr(self, name))} entries for {self.rows} rows")
        for name in ("advantages", "behaviour", "clip_low", "clip_high", "temperature"):
            if not np.isfinite(getattr(self, name)).all():
                raise BatchFileInvalid(f"{name}: not finite")
        if np.any(self.temperature <= 0):
            raise BatchFileInvalid("temperature: not above 0")
        if np.any(self.ids < 0):
            raise BatchFileInvalid("ids: negative")
        if self.rows and np.any(self.mask[self.offsets[:-1]]):
            raise BatchFileInvalid("mask: a row's first token has no context to be trained in")


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
    """Updates that a token may be old."""
    max_staleness_guided: int
    """The same for guided rows."""
    clip_low: float
    clip_high: float
    clip_boosted: float
    """clip_high of guided tokens with positive advantage."""


class Built(msgspec.Struct, frozen=True):
    """What `build` made of a batch."""

    batch: TrajectoryBatch | None
    """None if no row is left."""
    dropped: dict[str, int]
    """Rows left out, by reason."""
    statistics: dict[str, float]


class _Row(msgspec.Struct, frozen=True):
    """One row's columns on their way into the batch."""

    columns: dict[str, npt.NDArray[np.generic]]
    guided: bool
    temperature: float
    trajectory: int
    staleness: npt.NDArray[np.int64]
    """Per trained token, in updates."""


def strip(column: npt.NDArray[T], span: tuple[int, int]) -> npt.NDArray[T]:
    """A row's ids, or any other of its columns, without the half-open `span`."""
    return np.concatenate([column[: span[0]], column[span[1] :]])


def build(items: Sequence[BatchItem], credits: Credits, settings: BuildSettings, *, order: str = "") -> Built:
    """Pack the rows that have credit; whatever cannot be trained on is left out and counted by reason.

    Reasons: `ragged` (arrays of different lengths), `empty`, `hint_span` (experience that cannot be cut out),
    `temperature`, `vocabulary`, `bad_logprobs`, `step_outside`, `future_version`, `unknown_version`, `too_long`,
    `stale` (every token too old), `all_masked`.

    Args:
        items: the batch.
        credits: from `assign` on the same items.
        settings: limits and clip ranges.
        order: id of the order, kept in the batch.
    """
    dropped: Counter[str] = Counter()
    rows: list[_Row] = []
    trajectories: list[str] = []
    ages = {version: age for age, version in enumerate(reversed(settings.chain))}
    stale_tokens = 0
    for item, advantages in zip(items, credits.advantages, strict=True):
        if advantages is None:
            continue
        trajectory = item.attributed.trajectory
        kept = False
        if not trajectory.rows:
            dropped["empty"] += 1
        for token_row in trajectory.rows:
            found, stale = _row(
                token_row, advantages, bool(trajectory.experience_ids), len(trajectories), ages, settings
            )
            stale_tokens += stale
            if isinstance(found, str):
                dropped[found] += 1
            else:
                rows.append(found)
                kept = True
        if kept:
            trajectories.append(trajectory.id)
    if not rows:
        return Built(None, dict(dropped), {"rows": 0.0, "stale_tokens": float(stale_tokens)})
    batch = TrajectoryBatch(
        **{name: np.concatenate([row.columns[name] for row in rows]).astype(dtype) for name, dtype in _TOKENS.items()},
        lengths=np.array([len(row.columns["ids"]) for row in rows], np.int64),
        guided=np.array([row.guided for row in rows], np.uint8),
        temperature=np.array([row.temperature for row in rows], np.float32),
        trajectory=np.array([row.trajectory for row in rows], np.int32),
        trajectories=tuple(trajectories),
        base_version=settings.chain[-1],
        order=order,
    )
    staleness = np.concatenate([row.staleness for row in rows])
    statistics = {
        "rows": float(len(rows)),
        "guided_rows": float(batch.guided.sum()),
        "trained_tokens": float(batch.tokens),
        "stale_tokens": float(stale_tokens),
        "staleness_mean": float(staleness.mean()),
        "staleness_max": float(staleness.max()),
    }
    return Built(batch, dict(dropped), statistics)


def _row(
    row: TokenRow,
    advantages: npt.NDArray[np.float32],
    experienced: bool,
    trajectory: int,
    ages: Mapping[int, int],
    settings: BuildSettings,
) -> tuple[_Row | str, int]:
    """The row's columns, or why it is left out; and how many of its tokens were too old."""
    try:
        ids, steps = ids_array(row.ids), steps_array(row.step)
        behaviour, versions = floats_array(row.logprobs), ids_array(row.versions)
    except ValueError:
        return "ragged", 0
    if not len(ids) == len(steps) == len(behaviour) == len(versions):
        return "ragged", 0
    if not np.isfinite(row.temperature) or row.temperature <= 0:
        return "temperature", 0
    start, end = row.hint
    guided = end > start
    if (experienced and not guided) or not 0 <= start <= end <= len(ids) or np.any(steps[start:end] >= 0):
        return "hint_span", 0
    if guided:
        ids, steps = strip(ids, row.hint), strip(steps, row.hint)
        behaviour, versions = strip(behaviour, row.hint), strip(versions, row.hint)
    if len(ids) < 2:
        return "empty", 0
    if np.any(ids < 0) or np.any(ids >= settings.vocabulary):
        return "vocabulary", 0
    if len(ids) > settings.max_tokens:
        return "too_long", 0
    if steps.max() >= len(advantages) or steps.min() < -1:
        return "step_outside", 0
    mask = steps >= 0
    mask[0] = False
    sampled = behaviour[mask]
    if not np.isfinite(sampled).all() or np.any(sampled > LOGPROB_SLACK):
        return "bad_logprobs", 0
    own = versions[mask]
    if np.any(own > settings.newest):
        return "future_version", 0
    if np.any(own < 0):
        return "unknown_version", 0
    # A version that is not in the chain was rolled back, or forgotten for its age.
    limit = min(settings.max_staleness, settings.max_staleness_guided) if guided else settings.max_staleness
    age = np.full(len(ids), limit + 1, np.int64)
    age[mask] = [ages.get(int(version), limit + 1) for version in own]
    old = mask & (age > limit)
    stale = int(old.sum())
    mask &= ~old
    if not mask.any():
        return ("stale" if stale else "all_masked"), stale
    credit = np.where(mask, advantages[np.where(mask, steps, 0)], np.float32(0))
    boosted = guided & (credit > 0)
    columns: dict[str, npt.NDArray[np.generic]] = {
        "ids": ids,
        "mask": mask,
        "advantages": credit,
        "behaviour": np.where(mask, behaviour, np.float32(0)),
        "clip_low": np.full(len(ids), settings.clip_low, np.float32),
        "clip_high": np.where(boosted, np.float32(settings.clip_boosted), np.float32(settings.clip_high)),
        "versions": versions,
        "steps": steps,
    }
    return _Row(columns, guided, row.temperature, trajectory, age[mask]), stale
