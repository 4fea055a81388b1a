"""manifest.json of a version directory: what the learner says of the weights that it wrote.

v000007/  model.safetensors, config.json, ...   the files that it names
          manifest.json                         this
          manifest.sig                          the learner's signature on it, hex (`actors.messages.signing`)
          spot_check.json                       tokens that show whether an engine computes what the learner does
"""

from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from actors.messages.policy import FileDigest

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
SPOT_CHECK = "spot_check.json"
_SHA256 = 64


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is in a version, and where it comes from."""

    version: Annotated[int, msgspec.Meta(ge=0)]
    parent: int
    """Version that it was trained from, -1 for the first."""
    files: tuple[FileDigest, ...]
    """Every other file of the directory but the signature, sorted by name."""
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    """Name -> type as safetensors writes it ("F32", "BF16") and shape."""
    batch_ids: tuple[str, ...] = ()
    metrics: dict[str, float | None] = {}
    """Of the learner; None where a figure was not finite, which JSON cannot say."""
    created: float = 0.0
    """Unix seconds."""
    no_gradient: dict[str, str] = {}
    """Trajectories of its batch that it learned nothing from, by id, with the reason of each."""


class SpotCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens whose log-probs tell whether the weights that serve are those that were meant."""

    ids: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=2)]
    log_probs: list[float]
    """Of `ids[1:]`, each given those before it, nats, as the learner computes them."""

    def __post_init__(self) -> None:
        if len(self.log_probs) != len(self.ids) - 1:
            raise ValueError(f"{len(self.log_probs)} log-probs for {len(self.ids)} ids; each but the first has one")


def bad_file(manifest: Manifest) -> str:
    """What is wrong with the list of files, naming the first; empty if nothing is.

    A name is a plain file name: a manifest must not reach out of its directory.
    """
    seen = {MANIFEST, SIGNATURE}
    for entry in manifest.files:
        name = entry.name
        if not name or name.startswith(".") or "\\" in name or "\0" in name or PurePosixPath(name).name != name:
            return f"{name!r} is no plain file name"
        if name in seen:
            return f"{name} is named twice, or is the manifest's own"
        if entry.size < 0 or len(entry.sha256) != _SHA256:
            return f"{name} has no size or digest that could be checked"
        seen.add(name)
    return ""
