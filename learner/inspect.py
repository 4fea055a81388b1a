"""`inspect`: a batch file as a person reads it. Needs no torch.

    an order's file (what the curator wrote) -> credit and `build`, row by row --> Inspection -> terminal, HTML, JSON
    a packed `TrajectoryBatch`               --------------------------------/

An order has no advantages yet: they are computed here as the learner would now, with the settings and, where a state
directory is at hand, with its versions. A packed batch shows what the trainer really got.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from actors.messages import (
    BatchItem,
    MessageError,
    Processing,
    TokenRow,
    decode_batch,
    floats_array,
    ids_array,
    steps_array,
)
from learner.batch import TrajectoryBatch
from learner.build import BuildSettings, build
from learner.credit import Credits, assign
from learner.errors import BatchFileInvalid
from learner.settings import LearnerSettings

ANY = 2**31 - 1
"""A limit that no row comes near."""
Decode = Callable[[Sequence[int]], list[str]]
"""Ids to one piece of text each, which together are the whole text."""


class TokenView(msgspec.Struct, frozen=True):
    """One token of a row, experience included."""

    id: int
    text: str
    step: int
    """That sampled it, -1 for none."""
    version: int
    """Weight version that sampled it, -1 for none."""
    trained: bool
    cut: bool
    """It is retrieved experience, which the trainer does not see."""
    advantage: float
    behaviour: float
    """Recorded log-prob, nats."""
    clip_low: float
    clip_high: float


class RowView(msgspec.Struct, frozen=True, kw_only=True):
    """One row; `tokens` is in reading order."""

    tokens: tuple[TokenView, ...]
    guided: bool
    temperature: float
    hint: tuple[int, int] | None
    """Half-open span that is cut out; None in a packed batch, where it is gone."""
    weight: float
    """Share of its trajectory's trained tokens."""
    reason: str = ""
    """Why it is left out; empty if it is trained on."""
    processing: Processing = Processing()


class TrajectoryView(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory with its rows."""

    id: str
    rows: tuple[RowView, ...]
    group: str = ""
    cluster: str = ""
    source: str = ""
    role: str = "train"
    goal: str = ""
    outcome: float | None = None
    labels: tuple[str, ...] = ()
    """GOOD, BAD or ABSTAIN, one a step."""
    agents: tuple[str, ...] = ()
    """Who acted, one a step; empty where one agent did it all."""
    advantages: tuple[float, ...] = ()
    """One a step; empty if it is not trained on."""
    experience: tuple[str, ...] = ()
    reason: str = ""
    """Why it has no advantages; empty if it has."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    file: str
    kind: Literal["order", "packed"]
    trajectories: tuple[TrajectoryView, ...]
    base_version: int | None
    """Weights that staleness is counted from; None if not known."""
    dropped: dict[str, int]
    """Trajectories and rows that are left out, by reason."""
    figures: dict[str, float]
    order: str = ""
    tokenizer: str = ""
    """sha256 of the tokenizer that the ids are of, if the file says."""
    notes: tuple[str, ...] = ()
    """What the reader must know to read the numbers right."""

    @property
    def largest(self) -> float:
        """Largest advantage of any trained token, in size; colours are relative to it."""
        sizes = (abs(t.advantage) for view in self.trajectories for row in view.rows for t in row.tokens if t.trained)
        return max(sizes, default=0.0)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner's state directory and the warm start tell; every part may be missing."""

    chain: tuple[int, ...] = ()
    newest: int = -1
    updates: int = 0
    """Made so far, for the schedule of alpha."""
    vocabulary: int = ANY
    max_tokens: int = ANY


def inspect(
    path: Path, settings: LearnerSettings, known: Known, decode: Decode, *, name: str | None = None, limit: int = 0
) -> Inspection:
    """Read the batch file at `path`.

    Args:
        name: beginning of the id of the only trajectory to show; figures stay those of the whole batch.
        limit: trajectories to show, 0 for all.

    Raises:
        BatchFileInvalid: it cannot be read, or is neither kind of batch.
    """
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise BatchFileInvalid(f"{path}: {error.strerror}") from error
    # safetensors begins with the length of its JSON header; no msgpack array of items has a brace there.
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 100_000_000:
        return _packed(path.name, TrajectoryBatch.load(path), decode, _Chosen(name or "", limit))
    try:
        items = decode_batch(path.read_bytes())
    except OSError as error:
        raise BatchFileInvalid(f"{path}: {error.strerror}") from error
    except MessageError as error:
        raise BatchFileInvalid(f"{path.name}: neither a packed batch nor an order's file ({error})") from error
    return _order(path.name, items, settings, known, decode, _Chosen(name or "", limit))


class _Chosen:
    """Which trajectories are shown: those of an id, the first of all."""

    def __init__(self, name: str, limit: int) -> None:
        self._name, self._limit, self._shown = name, limit, 0
        self.left = 0
        """Trajectories that the limit kept out."""

    def __call__(self, id: str) -> bool:
        if not id.startswith(self._name):
            return False
        if self._limit and self._shown >= self._limit:
            self.left += 1
            return False
        self._shown += 1
        return True

    def notes(self) -> tuple[str, ...]:
        return (f"{self.left} more are not shown",) if self.left else ()


def decoder(tokenizer: Path | None) -> Decode:
    """Text of ids by a tokenizer.json; without one, the ids themselves.

    Raises:
        BatchFileInvalid: the file is no tokenizer.
    """
    if tokenizer is None:
        return lambda ids: [f"{token} " for token in ids]
    try:
        made = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # tokenizers raises bare Exception
        raise BatchFileInvalid(f"{tokenizer}: {error}") from error

    def decode(ids: Sequence[int]) -> list[str]:
        # A character may span tokens: it stands at the last of them.
        stream = DecodeStream(skip_special_tokens=False)
        size = made.get_vocab_size()
        return [
            (stream.step(made, int(token)) or "") if 0 <= token < size else f"⟨{token}: no such token⟩" for token in ids
        ]

    return decode


def _order(
    name: str,
    items: Sequence[BatchItem],
    settings: LearnerSettings,
    known: Known,
    decode: Decode,
    chosen: _Chosen,
) -> Inspection:
    credits = assign(items, settings.credit)
    rows = [row for item in items for row in item.attributed.trajectory.rows]
    notes = ["advantages are computed now, with the present settings; the learner's own may have differed"]
    chain, newest = known.chain, known.newest
    if not chain:
        newest = max((_newest(row) for row in rows), default=0)
        chain = tuple(range(max(0, newest - 63), max(0, newest) + 1))
        notes.append(f"no learner's state at hand: version {newest} counts as the newest")
    limits = BuildSettings(
        vocabulary=known.vocabulary,
        max_tokens=known.max_tokens,
        chain=chain,
        newest=newest,
        max_staleness=settings.max_staleness,
        max_staleness_guided=settings.max_staleness_guided,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        clip_boosted=settings.clip_boosted,
        processes=settings.trainer == "native",
    )
    built = build(items, credits, limits)
    dropped = dict(credits.skipped)
    for reason, n in built.dropped.items():
        dropped[reason] = dropped.get(reason, 0) + n
    views: list[TrajectoryView] = []
    for item, advantages, reason in zip(items, credits.advantages, credits.left, strict=True):
        trajectory = item.attributed.trajectory
        if not chosen(trajectory.id):
            continue
        views.append(
            TrajectoryView(
                id=trajectory.id,
                rows=_weighted([_row(item, row, advantages, limits, decode) for row in trajectory.rows]),
                group=trajectory.group,
                cluster=item.attributed.cluster,
                source=trajectory.source,
                role=item.role,
                goal=trajectory.goal,
                outcome=trajectory.outcome,
                labels=tuple(label.label for label in item.attributed.attribution.labels),
                agents=tuple(step.role for step in trajectory.steps) if trajectory.handoffs else (),
                advantages=tuple(advantages.tolist()) if advantages is not None else (),
                experience=trajectory.experience_ids,
                reason=reason,
            )
        )
    figures = {f"credit_{key}": value for key, value in credits.statistics.items()} | built.statistics
    return Inspection(
        file=name, kind="order", trajectories=tuple(views), base_version=chain[-1], dropped=dropped, figures=figures,
        notes=(*notes, *chosen.notes()),
    )  # fmt: skip


def _row(
    item: BatchItem, row: TokenRow, advantages: npt.NDArray[np.float32] | None, limits: BuildSettings, decode: Decode
) -> RowView:
    """One row as `build` would take it, with its experience left in."""
    try:
        ids, steps = ids_array(row.ids), steps_array(row.step)
        behaviour, versions = floats_array(row.logprobs), ids_array(row.versions)
        if not len(ids) == len(steps) == len(behaviour) == len(versions):
            raise ValueError
    except ValueError:
        return RowView(tokens=(), guided=False, temperature=row.temperature, hint=row.hint, weight=0.0, reason="ragged")
    trajectory = msgspec.structs.replace(item.attributed.trajectory, rows=(row,))
    alone = msgspec.structs.replace(item, attributed=msgspec.structs.replace(item.attributed, trajectory=trajectory))
    made = build([alone], Credits((advantages,), ("",), {}, {}), limits)
    n, (start, end) = len(ids), row.hint
    cut = np.zeros(n, np.bool_)
    cut[max(0, start) : max(0, end)] = True
    columns = {name: np.zeros(n, np.float64) for name in ("mask", "advantages", "clip_low", "clip_high")}
    if made.batch is not None:
        for name, column in columns.items():
            column[~cut] = getattr(made.batch, name)
    pieces = decode(ids.tolist())
    return RowView(
        tokens=_tokens(ids, pieces, steps, versions, behaviour, cut, columns),
        guided=bool(cut.any()),
        temperature=row.temperature,
        hint=row.hint,
        weight=0.0,
        reason=next(iter(made.dropped), ""),
        processing=row.processing,
    )


def _packed(name: str, batch: TrajectoryBatch, decode: Decode, chosen: _Chosen) -> Inspection:
    shown = [chosen(id) for id in batch.trajectories]
    rows: list[list[RowView]] = [[] for _ in batch.trajectories]
    weights, offsets = batch.row_weights, batch.offsets
    for b in range(batch.rows):
        if not shown[int(batch.trajectory[b])]:
            continue
        part = slice(int(offsets[b]), int(offsets[b + 1]))
        columns = {key: getattr(batch, key)[part] for key in ("mask", "advantages", "clip_low", "clip_high")}
        ids = batch.ids[part]
        tokens = _tokens(
            ids, decode(ids.tolist()), batch.steps[part], batch.versions[part], batch.behaviour[part],
            np.zeros(len(ids), np.bool_), columns,
        )  # fmt: skip
        rows[int(batch.trajectory[b])].append(
            RowView(
                tokens=tokens,
                guided=bool(batch.guided[b]),
                temperature=float(batch.temperature[b]),
                processing=batch.processing[b] if batch.processing else Processing(),
                hint=None,
                weight=float(weights[b]),
            )
        )
    groups = batch.groups or ("",) * len(batch.trajectories)
    views = tuple(
        TrajectoryView(id=id, rows=tuple(own), group=group, advantages=_by_step(own))
        for id, own, group, wanted in zip(batch.trajectories, rows, groups, shown, strict=True)
        if wanted
    )
    notes = (
        ("of guided rows experience is cut out already, or placeholders stand for what was redacted",)
        if batch.guided.any()
        else ()
    )
    figures = {"rows": float(batch.rows), "trained_tokens": float(batch.tokens)}
    return Inspection(
        file=name, kind="packed", trajectories=views, base_version=batch.base_version, dropped={}, figures=figures,
        order=batch.order, tokenizer=batch.tokenizer, notes=(*notes, *chosen.notes()),
    )  # fmt: skip


def _tokens(
    ids: npt.NDArray[np.int32],
    pieces: Sequence[str],
    steps: npt.NDArray[np.int16],
    versions: npt.NDArray[np.int32],
    behaviour: npt.NDArray[np.float32],
    cut: npt.NDArray[np.bool_],
    columns: Mapping[str, npt.NDArray[np.generic]],
) -> tuple[TokenView, ...]:
    return tuple(
        TokenView(
            int(ids[i]), pieces[i], int(steps[i]), int(versions[i]), bool(columns["mask"][i]), bool(cut[i]),
            float(columns["advantages"][i]), float(behaviour[i]), float(columns["clip_low"][i]),
            float(columns["clip_high"][i]),
        )
        for i in range(len(ids))
    )  # fmt: skip


def _weighted(rows: Sequence[RowView]) -> tuple[RowView, ...]:
    own = [sum(token.trained for token in row.tokens) for row in rows]
    whole = max(1, sum(own))
    return tuple(msgspec.structs.replace(row, weight=n / whole) for row, n in zip(rows, own, strict=True))


def _by_step(rows: Sequence[RowView]) -> tuple[float, ...]:
    """The advantage of each step that has trained tokens, in the order of steps."""
    found = {token.step: token.advantage for row in rows for token in row.tokens if token.trained}
    return tuple(found[step] for step in sorted(found))


def _newest(row: TokenRow) -> int:
    try:
        versions = ids_array(row.versions)
    except ValueError:
        return -1
    return int(versions.max()) if len(versions) else -1
