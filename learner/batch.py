"""`TrajectoryBatch`: one update's token rows, packed without padding, as every trainer takes them.

    BatchItems + Credits -> `build.build` (checks, staleness, stripping) -> TrajectoryBatch -> trainer, or one file

The file is safetensors: no pickle, and no types but numpy's, so that any trainer in any environment can read it.
"""

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from actors.messages import Processing
from actors.messages.files import write_whole
from learner.errors import BatchFileInvalid

SCHEMA = 4
LOGPROB_SLACK = 1e-3
"""Log-probs above 0 by less than this are rounding of a lower precision; by more, they are no log-probs."""

TOKENS: dict[str, str] = {
    "ids": "int32", "mask": "uint8", "advantages": "float32", "behaviour": "float32", "clip_low": "float32",
    "clip_high": "float32", "versions": "int32", "steps": "int16",
}  # fmt: skip
ROWS: dict[str, str] = {"lengths": "int64", "guided": "uint8", "temperature": "float32", "trajectory": "int32"}


def computable(one: Processing) -> bool:
    """Whether log-probs can be computed under `one`: its numbers are within their ranges, and finite."""
    penalties = (one.repetition_penalty, one.presence_penalty, one.frequency_penalty)
    within = 0 < one.top_p <= 1 and one.top_k >= 0 and 0 <= one.min_p <= 1 and one.repetition_penalty > 0
    return within and all(map(math.isfinite, penalties))


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
    """`(B,)`, 1 where experience was cut out, or placeholders stand for what redaction took out: the behaviour
    log-probs are of another context."""
    temperature: npt.NDArray[np.float32]
    """`(B,)` that the row was sampled at."""
    trajectory: npt.NDArray[np.int32]
    """`(B,)` index into `trajectories`."""
    trajectories: tuple[str, ...]
    """Ids of the trajectories that rows came from."""
    base_version: int
    """Weights that the batch was prepared against."""
    processing: tuple[Processing, ...] = ()
    """Of each row, what was done to the logits that it was sampled from; no entries: nothing but the temperature."""

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
        """Write one safetensors file; under its name it is whole or absent. Raises OSError: disk full, no
        permission."""
        header = {
            "schema": str(SCHEMA),
            "trajectories": json.dumps(self.trajectories),
            "base_version": str(self.base_version),
            "processing": json.dumps(msgspec.to_builtins(self.processing)),
        }
        data = save({name: getattr(self, name) for name in (*TOKENS, *ROWS)}, metadata=header)
        write_whole(path, data, mode=0o600)  # what agents and users said: for our own eyes alone

    @classmethod
    def load(cls, path: Path) -> "TrajectoryBatch":
        """Read a file that `save` wrote. Raises BatchFileInvalid: no such file, truncated, another schema, or arrays
        that do not fit together."""
        try:
            with safe_open(path, "numpy") as file:
                header: dict[str, str] = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError) as error:
            raise BatchFileInvalid(f"{path.name}: {error}") from error
        if header.get("schema") != str(SCHEMA):
            raise BatchFileInvalid(f"{path.name}: schema {header.get('schema')!r}, this learner reads {SCHEMA}")
        for name, dtype in (TOKENS | ROWS).items():
            if name not in arrays or arrays[name].dtype != dtype or arrays[name].ndim != 1:
                raise BatchFileInvalid(f"{path.name}: {name} is missing or not one-dimensional {dtype}")
        try:
            batch = cls(
                **{name: arrays[name] for name in (*TOKENS, *ROWS)},
                trajectories=tuple(json.loads(header["trajectories"])),
                base_version=int(header["base_version"]),
                processing=msgspec.json.decode(header["processing"], type=tuple[Processing, ...]),
            )
        except (KeyError, ValueError, TypeError, msgspec.DecodeError) as error:
            raise BatchFileInvalid(f"{path.name}: header: {error}") from error
        batch.check()
        return batch

    def check(self) -> None:
        """Whether the arrays fit together and every number can be computed with. Raises BatchFileInvalid: names the
        array."""
        n = int(self.lengths.sum()) if len(self.lengths) else 0
        if np.any(self.lengths < 2):
            raise BatchFileInvalid("lengths: a row needs two tokens")
        for name in TOKENS:
            if len(getattr(self, name)) != n:
                raise BatchFileInvalid(f"{name}: {len(getattr(self, name))} entries, the rows have {n} tokens")
        for name in ROWS:
            if len(getattr(self, name)) != self.rows:
                raise BatchFileInvalid(f"{name}: {len(getattr(self, name))} entries for {self.rows} rows")
        for name in ("advantages", "behaviour", "clip_low", "clip_high", "temperature"):
            if not np.isfinite(getattr(self, name)).all():
                raise BatchFileInvalid(f"{name}: not finite")
        if np.any((self.trajectory < 0) | (self.trajectory >= len(self.trajectories))):
            raise BatchFileInvalid("trajectory: an index without its trajectory")
        if self.processing and len(self.processing) != self.rows:
            raise BatchFileInvalid(f"processing: {len(self.processing)} entries for {self.rows} rows")
        strange = next((one for one in self.processing if not computable(one)), None)
        if strange is not None:
            raise BatchFileInvalid(f"processing: {strange} cannot be computed with")
        if np.any(self.mask > 1) or np.any(self.guided > 1):
            raise BatchFileInvalid("mask, guided: neither 0 nor 1")
        if np.any(self.clip_low < 0) or np.any(self.clip_high < 0):
            raise BatchFileInvalid("clip_low, clip_high: negative")
        if np.any(self.behaviour[self.mask > 0] > LOGPROB_SLACK):
            raise BatchFileInvalid("behaviour: above 0, so no log-probs")
        if np.any(self.temperature <= 0):
            raise BatchFileInvalid("temperature: not above 0")
        if np.any(self.ids < 0):
            raise BatchFileInvalid("ids: negative")
        if self.rows and np.any(self.mask[self.offsets[:-1]]):
            raise BatchFileInvalid("mask: a row's first token has no context to be trained in")
