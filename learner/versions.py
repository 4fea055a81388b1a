"""Version directories: full weights in Hugging Face files with a manifest, whole under their name or not there at all.

    <state>/versions/v000007/    model.safetensors, config.json, tokenizer files, manifest.json, manifest.sig
    <state>/versions/pinned      version numbers that must be kept, one a line, `7` or `7 serving`; whoever serves them
                                 writes it

A directory is written aside, fsynced and renamed. The manifest holds digests of the files and names, types and shapes
of the tensors; with a key it is signed, so that whoever may write to the disk but not read the key cannot slip weights
in. The signature lies beside it: signing again with another key changes no manifest, and so no verdict on it.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from actors.messages import MANIFEST, SIGNATURE, Candidate, FileDigest, Manifest, derived_id
from actors.messages.files import fsync, write_whole
from actors.messages.signing import PublicKeys, SigningKey
from learner.errors import CheckpointInvalid

R = TypeVar("R")
_log = structlog.get_logger(__name__)
_NAME = re.compile(r"v(\d{6,})")
WEIGHTS = "model.safetensors"
COPIED = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
)  # fmt: skip
"""What an engine needs besides weights; taken over from the parent unchanged, if it has it."""
UNSIGNED = "; if it is yours and older than signatures, sign it: evolved provenance sign"


def tensor_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Names, types and shapes in a safetensors file, from its header alone; CheckpointInvalid if it has none."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 0 < size < 100_000_000:
                raise CheckpointInvalid(f"{path}: no safetensors header")
            header = json.loads(file.read(size))
        return {
            name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items() if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointInvalid(f"{path}: {error}") from error


class Pins(msgspec.Struct, frozen=True):
    """What whoever serves wants kept."""

    pinned: frozenset[int] = frozenset()
    """Versions whose directories stay; those in `serving` among them."""
    serving: frozenset[int] = frozenset()
    """Versions that an engine serves: what the learner may be sent back to."""


class Versions:
    """The directory of version directories. Blocking."""

    def __init__(self, directory: Path, *, key: SigningKey | None = None, trusted: PublicKeys | None = None) -> None:
        """`key` signs manifests, `trusted` checks those that are read; None does neither."""
        self.directory, self._key, self._trusted = directory, key, trusted

    def path(self, version: int) -> Path:
        """Where `version` is, or would be."""
        return self.directory / f"v{version:06d}"

    def numbers(self) -> list[int]:
        """Versions on disk, ascending."""
        if not self.directory.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match.group(1)) for match in found if match)

    def write(
        self,
        version: int,
        parent: int,
        fill: Callable[[Path], Sequence[FileDigest]],
        *,
        rest: Path,
        batch_ids: tuple[str, ...],
        metrics: Mapping[str, float | None],
        created: float,
        no_gradient: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Make the directory of `version`; it appears whole, with the rename at the very end, or not at all.

        `fill` writes the weights' safetensors files into the directory it is given and returns digests of those that it
        hashed meanwhile: they are not read back. Configuration and tokenizer are taken from `rest`.
        """

        def content(aside: Path) -> Manifest:
            known = fill(aside)
            for name in COPIED:
                if (rest / name).is_file():
                    shutil.copyfile(rest / name, aside / name)
            files = digests(aside.iterdir(), known)
            manifest = Manifest(
                version=version,
                parent=parent,
                files=files,
                tensors=dict(entry for path in weight_files(aside) for entry in sorted(tensor_shapes(path).items())),
                batch_ids=batch_ids,
                metrics=dict(metrics),
                created=created,
                no_gradient=dict(no_gradient or {}),
            )
            written = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            (aside / MANIFEST).write_bytes(written)
            if self._key is not None:
                (aside / SIGNATURE).write_text(f"{self._key.sign('manifest', written)}\n")
            return manifest

        return write_directory(self.path(version), content)

    def read(self, version: int, *, verify: bool = False) -> Manifest:
        """The manifest of `version`; with `verify` every file is read and compared. CheckpointInvalid: absent,
        incomplete, altered, or not signed by a key that is trusted."""
        directory = self.path(version)
        try:
            content = (directory / MANIFEST).read_bytes()
            manifest = msgspec.json.decode(content, type=Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointInvalid(f"{directory.name}: manifest: {error}") from error
        if manifest.version != version:
            raise CheckpointInvalid(f"{directory.name}: its manifest is of version {manifest.version}")
        if self._trusted is not None:
            problem = self._trusted.problem("manifest", content, read_signature(directory))
            if problem:
                raise CheckpointInvalid(f"{directory}: {problem}{'' if read_signature(directory) else UNSIGNED}")
        if verify:
            for entry in manifest.files:
                try:
                    found = digest(directory / entry.name)
                except OSError as error:
                    raise CheckpointInvalid(f"{directory.name}/{entry.name}: {error.strerror}") from error
                if found != entry:
                    raise CheckpointInvalid(f"{directory.name}/{entry.name}: content differs from the manifest")
        return manifest

    def sign(self, version: int) -> None:
        """Sign the manifest of `version` (again): one from before signatures, or whose key is to be given up.
        CheckpointInvalid: a file is not what it says."""
        assert self._key is not None
        Versions(self.directory).read(version, verify=True)
        directory = self.path(version)
        signature = self._key.sign("manifest", (directory / MANIFEST).read_bytes())
        write_whole(directory / SIGNATURE, f"{signature}\n".encode())

    def candidate(self, version: int) -> Candidate:
        """The announcement of `version`; the same each time. Raises CheckpointInvalid."""
        manifest = self.read(version)
        directory = self.path(version)
        return Candidate(
            id=derived_id("candidate", version),
            version=version,
            parent=manifest.parent,
            path=str(directory.absolute()),
            files=manifest.files,
            manifest=sha256((directory / MANIFEST).read_bytes()).hexdigest(),
            batch_ids=manifest.batch_ids,
            metrics={name: value for name, value in manifest.metrics.items() if value is not None},
            created=manifest.created,
            no_gradient=manifest.no_gradient,
        )

    def line(self, version: int, longest: int) -> tuple[int, ...]:
        """`version` and what it came of, the oldest first, as far as manifests on disk tell; `longest` at most."""
        line = [version]
        while len(line) < longest:
            try:
                parent = self.read(line[-1]).parent
            except CheckpointInvalid:
                break
            if not 0 <= parent < line[-1]:
                break
            line.append(parent)
        return tuple(reversed(line))

    def prune(self, keep: int, spared: Iterable[int] = ()) -> list[int]:
        """Delete all but the newest `keep`, version 0, pinned and `spared` ones; returns what was deleted.

        A list of pinned versions that cannot be read protects everything.
        """
        pins = self.pins()
        if pins is None:
            return []
        kept = {0, *spared} | pins.pinned
        old = [version for version in self.numbers()[:-keep] if version not in kept]
        for version in old:
            remove_directory(self.path(version))
        return old

    def sweep(self) -> None:
        """Remove what a killed process left half written or half deleted."""
        sweep(self.directory)

    def pins(self) -> Pins | None:
        """What must be kept; None if that cannot be read, and then everything must."""
        pinned: set[int] = set()
        serving: set[int] = set()
        try:
            for line in (self.directory / "pinned").read_text().splitlines():
                word, *marks = line.split() or [""]
                if marks not in ([], ["serving"]):
                    raise ValueError(f"{line!r} is neither `7` nor `7 serving`")
                if word:
                    pinned.add(int(word.removeprefix("v")))
                if marks:
                    serving.add(int(word.removeprefix("v")))
        except FileNotFoundError:
            return Pins()
        except (OSError, ValueError) as error:
            _log.warning("pinned_unreadable", reason=str(error))
            return None
        return Pins(frozenset(pinned), frozenset(serving))


def read_signature(directory: Path) -> str:
    """The signature on the manifest in `directory`, hex; empty if there is none."""
    try:
        return (directory / SIGNATURE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def weight_files(directory: Path) -> list[Path]:
    """The files that hold the weights in a Hugging Face checkpoint: one, or shards; CheckpointInvalid without."""
    one = directory / WEIGHTS
    files = [one] if one.is_file() else sorted(directory.glob("model-*-of-*.safetensors"))
    if not files:
        raise CheckpointInvalid(f"{directory} has no {WEIGHTS}")
    return files


def digest(path: Path) -> FileDigest:
    """Name, sha256 and size of the file at `path`."""
    found, size = sha256(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
            size += len(block)
    return FileDigest(path.name, found.hexdigest(), size)


def digests(paths: Iterable[Path], known: Iterable[FileDigest]) -> tuple[FileDigest, ...]:
    """Digests of files, by name; what is not among `known` is read."""
    told = {entry.name: entry for entry in known}
    return tuple(told.get(path.name) or digest(path) for path in sorted(paths))


def write_directory(target: Path, content: Callable[[Path], R]) -> R:
    """Let `content` fill a directory aside, make it durable, and give it its name in one step."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        result = content(aside)
        for path in (*aside.iterdir(), aside):
            fsync(path)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    fsync(target.parent)
    return result


def remove_directory(path: Path) -> None:
    """Take `path` out of sight in one step, then delete it: a reader never meets half a directory."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.gone")
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        shutil.rmtree(aside)


def sweep(directory: Path) -> None:
    """Remove what `write_directory` and `remove_directory` of a killed process left in `directory`."""
    for path in directory.glob(".v*"):
        if path.suffix in (".part", ".gone"):
            shutil.rmtree(path, ignore_errors=True)
