"""How weights come from the learner to where an engine can read them, behind one Protocol.

    learner's version directory  ->  `WeightSource.fetch`  ->  a directory that the engine can read  ->  swap

`shared` is for a disk that both see, `http` pulls from the learner's node. Whatever the way, what `fetch` returns has
a manifest that the learner signed, and appears whole or not at all, while the old version serves. What moves weights
otherwise (a collective between GPUs, differences to the version before) has the same three answers: a directory,
"never" (`CheckpointRefused`) or "not now" (`WeightsUnavailable`).
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

from actors.messages import MANIFEST, SIGNATURE, Manifest, bad_file
from actors.ports.errors import CheckpointRefused

Check = Callable[[bytes, str], str]
"""Given manifest.json and the signature on it (hex): why it does not count, empty if it does. May raise
`WeightsUnavailable` if there is nothing to check with yet."""


class Weights(msgspec.Struct, frozen=True):
    """A version where an engine can read it."""

    path: Path
    """Its directory."""
    manifest: str
    """sha256 of the manifest whose signature was checked: who loads it checks that it still is that one."""


class WeightSource(Protocol):
    """Brings versions to where the engines can read them."""

    async def fetch(self, path: Path, version: int, manifest: str = "") -> Weights:
        """`version`, with a manifest that the learner signed; its files are checked against it before a load.

        Args:
            path: where the learner wrote it, on its own node.
            manifest: sha256 that manifest.json must have; empty: any that the learner signed for this version.

        Raises:
            CheckpointRefused: not the version that was meant, not signed, or broken at the learner: never load it.
            WeightsUnavailable: not here yet, or not now; asking again goes on where this call stopped.
        """
        ...


def check_manifest(content: bytes, signature: str, *, where: str, version: int, wanted: str, check: Check) -> Manifest:
    """The manifest in `content`, if it may be believed and has the sha256 `wanted`, if that is not empty; raises
    CheckpointRefused, which names `where`."""
    if wanted and sha256(content).hexdigest() != wanted:
        raise CheckpointRefused(f"{where}: the manifest is not the one that was judged; copy the version again")
    problem = check(content, signature)
    if problem:
        raise CheckpointRefused(f"{where}: {problem}")
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointRefused(f"{where}: {MANIFEST}: {error}; write the version again") from error
    if manifest.version != version:
        raise CheckpointRefused(f"{where}: its manifest is of version {manifest.version}, {version} was meant")
    problem = bad_file(manifest)
    if problem:
        raise CheckpointRefused(f"{where}: its manifest lists a file that must not be: {problem}")
    return manifest


def check_directory(directory: Path, *, version: int, wanted: str, check: Check) -> Weights:
    """`directory`, if its manifest may be believed; its files are left for the validation before a load."""
    try:
        content = (directory / MANIFEST).read_bytes()
    except OSError as error:
        raise CheckpointRefused(f"{directory}: no manifest: {error.strerror}; is the version still there?") from error
    try:
        signature = (directory / SIGNATURE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        signature = ""
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointRefused(f"{directory}: {SIGNATURE} cannot be read: {error}") from error
    check_manifest(content, signature, where=str(directory), version=version, wanted=wanted, check=check)
    return Weights(directory, sha256(content).hexdigest())
