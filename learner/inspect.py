"""`inspect`: an order's file as a person reads it. Needs no torch.

    an order's file (what the curator wrote) -> credit and `build`, row by row -> Inspection -> terminal

An order has no advantages yet: they are computed here as the learner would now, with the settings and, where a state
directory is at hand, with its versions.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from actors.messages import BatchItem, MessageError, TokenRow, decode_batch, floats_array, ids_array, steps_array
from learner.build import BuildSettings, build
from learner.checkpoints import Checkpoints
from learner.credit import Credits, assign
from learner.errors import BatchFileInvalid
from learner.settings import LearnerSettings

ANY = 2**31 - 1
"""A limit that no row comes near."""
Decode = Callable[[Sequence[int]], list[str]]
"""Ids to one piece of text each, which together are the whole text."""


class TokenView(msgspec.Struct, frozen=True):
    """One token of a row, experience included."""

    text: str
    step: int
    """That sampled it, -1 for none."""
    version: int
    """Weight version that sampled it, -1 for none."""
    trained: bool
    cut: bool
    """It is retrieved experience, which the trainer does not see."""
    advantage: float
    clip_low: float
    clip_high: float


class RowView(msgspec.Struct, frozen=True):
    """One row."""

    row: TokenRow
    tokens: tuple[TokenView, ...] = ()
    """In reading order."""
    reason: str = ""
    """Why it is left out; empty if it is trained on."""


class TrajectoryView(msgspec.Struct, frozen=True):
    """One trajectory with its rows."""

    item: BatchItem
    rows: tuple[RowView, ...]
    advantages: tuple[float, ...]
    """One a step; empty if it is not trained on."""
    reason: str
    """Why it has no advantages; empty if it has."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    file: str
    trajectories: tuple[TrajectoryView, ...]
    base_version: int
    """Weights that staleness is counted from."""
    dropped: dict[str, int]
    """Trajectories and rows that are left out, by reason."""
    figures: dict[str, float]
    notes: tuple[str, ...]
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
    vocabulary: int = ANY
    max_tokens: int = ANY


def inspect(
    path: Path, settings: LearnerSettings, known: Known, decode: Decode, *, name: str = "", limit: int = 0
) -> Inspection:
    """Read the order's file at `path`: `limit` trajectories (0: all), or the one whose id begins like `name`; figures
    stay those of the whole batch. Raises BatchFileInvalid."""
    try:
        items = decode_batch(path.read_bytes())
    except OSError as error:
        raise BatchFileInvalid(f"{path}: {error.strerror}") from error
    except MessageError as error:
        raise BatchFileInvalid(f"{path.name}: not an order's file ({error})") from error
    credits = assign(items, settings.credit)
    notes = ["advantages are computed now, with the present settings; the learner's own may have differed"]
    chain, newest = known.chain, known.newest
    if not chain:
        newest = max((_newest(row) for item in items for row in item.attributed.trajectory.rows), default=0)
        chain = tuple(range(max(0, newest - 63), max(0, newest) + 1))
        notes.append(f"no learner's state at hand: version {newest} counts as the newest")
    limits = BuildSettings(
        vocabulary=known.vocabulary,
        max_tokens=known.max_tokens,
        chain=chain,
        newest=newest,
        max_staleness=settings.max_staleness,
        processes=settings.trainer == "native",
    )
    built = build(items, credits, limits)
    dropped = dict(credits.skipped)
    for reason, n in built.dropped.items():
        dropped[reason] = dropped.get(reason, 0) + n
    every = zip(items, credits.advantages, credits.left, strict=True)
    wanted = [one for one in every if one[0].attributed.trajectory.id.startswith(name)]
    shown = wanted[: limit or None]
    if len(shown) < len(wanted):
        notes.append(f"{len(wanted) - len(shown)} more are not shown")
    views = [
        TrajectoryView(
            item,
            tuple(_row(item, row, advantages, limits, decode) for row in item.attributed.trajectory.rows),
            tuple(advantages.tolist()) if advantages is not None else (),
            reason,
        )
        for item, advantages, reason in shown
    ]
    figures = {f"credit_{key}": value for key, value in credits.statistics.items()} | built.statistics
    return Inspection(
        file=path.name, trajectories=tuple(views), base_version=chain[-1], dropped=dropped, figures=figures,
        notes=tuple(notes),
    )  # fmt: skip


def decoder(tokenizer: Path | None) -> Decode:
    """Text of ids by a tokenizer.json; without one, the ids themselves. BatchFileInvalid: the file is no tokenizer."""
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


def known(settings: LearnerSettings, state: Checkpoints) -> Known:
    """Versions of `state`, limits of the model that trains there; whatever is missing is left open."""
    try:
        cursor, versions = state.look()
    except OSError:  # somebody else's directory, most likely
        cursor, versions = None, []
    head = [state.versions.path(cursor.head)] if cursor is not None else []
    warm = [Path(settings.warm_start)] if settings.warm_start else []
    vocabulary, max_tokens = _limits([*head, *warm])
    if cursor is None:
        return Known(vocabulary=vocabulary, max_tokens=max_tokens)
    return Known(chain=cursor.chain, newest=max(versions), vocabulary=vocabulary, max_tokens=max_tokens)


def tokenizer_file(given: Path | None, settings: LearnerSettings, state: Checkpoints) -> Path | None:
    """The tokenizer.json to read ids with, None if there is none; BatchFileInvalid if nothing is where `given` says."""
    if given is not None:
        path = given / "tokenizer.json" if given.is_dir() else given
        if not path.is_file():
            raise BatchFileInvalid(f"--tokenizer {given}: no tokenizer.json there")
        return path
    places = [Path(settings.warm_start)] if settings.warm_start else []
    try:
        places += [state.versions.path(version) for version in reversed(state.versions.numbers())]
        return next((path for place in places if (path := place / "tokenizer.json").is_file()), None)
    except OSError:
        return None


def _limits(checkpoints: list[Path]) -> tuple[int, int]:
    """Vocabulary and longest row, from the first config.json that can be read; no limits without."""
    for checkpoint in checkpoints:
        try:
            table = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
            return int(table["vocab_size"]), int(table.get("max_position_embeddings", ANY))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ANY, ANY


def _row(
    item: BatchItem, row: TokenRow, advantages: npt.NDArray[np.float32] | None, limits: BuildSettings, decode: Decode
) -> RowView:
    """One row as `build` would take it, with its experience left in."""
    try:
        ids, steps, versions = ids_array(row.ids), steps_array(row.step), ids_array(row.versions)
        if not len(ids) == len(steps) == len(floats_array(row.logprobs)) == len(versions):
            raise ValueError
    except ValueError:
        return RowView(row, reason="ragged")
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
    tokens = tuple(
        TokenView(
            pieces[i], int(steps[i]), int(versions[i]), bool(columns["mask"][i]), bool(cut[i]),
            float(columns["advantages"][i]), float(columns["clip_low"][i]), float(columns["clip_high"][i]),
        )
        for i in range(n)
    )  # fmt: skip
    return RowView(row, tokens, next(iter(made.dropped), ""))


def _newest(row: TokenRow) -> int:
    try:
        versions = ids_array(row.versions)
    except ValueError:
        return -1
    return int(versions.max()) if len(versions) else -1
