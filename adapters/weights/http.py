"""Weights pulled from the learner's node over HTTP, while the old version serves.

    GET URL/v000007/manifest.json, manifest.sig     checked before anything else is asked for
    GET URL/v000007/FILE  with Range                each into the hidden directory .v000007.pull, against its digest
    rename to v000007                               whole, durable, and only then visible

A connection that breaks costs what was in flight: the next request asks for the rest (RFC 9110, 14.2). A call that
takes too long stops and says how far it is; the next one goes on from there, in this process or in another.
"""

import contextlib
import hashlib
import time
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
import httpx
import structlog

from actors.messages import MANIFEST, SIGNATURE, FileDigest, Manifest
from actors.ports.errors import CheckpointRefused, WeightsDiskFull, WeightsUnavailable
from adapters.weights import Check, Weights, check_directory, check_manifest, disk

_log = structlog.get_logger(__name__)
_BLOCK = 1 << 20
_MANIFEST_BYTES = 64 << 20
_SIGNATURE_BYTES = 4096
_DOWNLOADS = 2
"""Of one file whose digest is wrong, before it is the learner's copy that must be broken."""
_LONGEST_WAIT = 5.0
_SILENCE = 30.0
"""Seconds without a byte after which a connection counts as dead."""
_ATTEMPTS = 5
"""Connections in a row that bring nothing before a pull gives up for now."""
_CALL_SECONDS = 30.0
"""That one call pulls; what is left then is pulled by the next."""
_SPARE_BYTES = 1 << 30
"""Left free on the disk: database and spool live there too."""


class HttpPull:
    """A `WeightSource` that copies versions below a directory of its own."""

    def __init__(
        self,
        url: str,
        directory: Path,
        *,
        keep: int,
        check: Check,
        http: httpx.AsyncClient,
    ) -> None:
        """
        Args:
            url: where the learner serves its versions, such as "http://10.0.0.7:8095".
            directory: where version directories appear.
            keep: newest versions that are kept here; version 0 and what the swapper pinned are kept besides.
            http: with the server's token among its headers; its closing is the caller's.
        """
        self._url, self._keep, self._directory = url, keep, directory
        self._check, self._http = check, http
        self._lock = anyio.Lock()
        self._hashes: dict[Path, tuple[int, hashlib._Hash]] = {}
        """Of partial files: length and digest so far, so that a call that goes on need not read them again."""
        self.counts: dict[str, int] = dict.fromkeys(
            ("bytes", "pulled", "resumed", "cut", "corrupt", "disk_full", "unfinished"), 0
        )

    async def fetch(self, path: Path, version: int, manifest: str = "") -> Weights:
        """See `WeightSource.fetch`; `path` means nothing on this node."""
        target = self._directory / disk.name(version)
        try:
            with anyio.fail_after(_CALL_SECONDS):
                async with self._lock:
                    if not target.is_dir():
                        await self._pull(version, manifest, target)
        except TimeoutError as error:
            self.counts["unfinished"] += 1
            here = await anyio.to_thread.run_sync(_size, disk.partial(self._directory, version))
            raise WeightsUnavailable(
                f"{target.name} is on its way, {here} bytes are here; the next call goes on from there"
            ) from error
        except WeightsDiskFull:
            self.counts["disk_full"] += 1
            raise

        def look() -> Weights:
            return check_directory(target, version=version, wanted=manifest, check=self._check)

        return await anyio.to_thread.run_sync(look)

    async def _pull(self, version: int, wanted: str, target: Path) -> None:
        began = time.monotonic()
        where = f"{self._url}/{target.name}"
        content = await self._small(f"{where}/{MANIFEST}", _MANIFEST_BYTES)
        signature = await self._small(f"{where}/{SIGNATURE}", _SIGNATURE_BYTES, missing=b"")
        manifest = check_manifest(
            content, signature.decode("ascii", "replace").strip(), where=where, version=version, wanted=wanted,
            check=self._check,
        )  # fmt: skip
        aside = disk.partial(self._directory, version)
        try:
            await anyio.to_thread.run_sync(self._prepare, aside, version, manifest, content, signature)
            for entry in manifest.files:
                await self._file(where, aside, entry)
        except WeightsDiskFull:
            # The database is on that disk too: what is half here is the first to go.
            await anyio.to_thread.run_sync(self._forget, aside)
            raise

        def finish() -> list[int]:
            disk.appear(aside, target)
            self._hashes.clear()
            return disk.prune(self._directory, self._keep, {version})

        gone = await anyio.to_thread.run_sync(finish)
        self.counts["pulled"] += 1
        size = sum(entry.size for entry in manifest.files)
        _log.info(
            "weights_pulled", version=version, bytes=size, seconds=round(time.monotonic() - began, 3), deleted=gone
        )

    def _prepare(self, aside: Path, version: int, manifest: Manifest, content: bytes, signature: bytes) -> None:
        with disk.writing(aside):
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            disk.sweep(self._directory, version)
            before = aside / MANIFEST
            if before.exists() and before.read_bytes() != content:
                self._forget(aside)  # pieces of another version of that number
            aside.mkdir(exist_ok=True, mode=0o755)
            names = {entry.name for entry in manifest.files}
            for path in aside.iterdir():
                if path.name.lstrip(".") not in names:
                    path.unlink()
            here = _size(aside)
            disk.make_room(self._directory, sum(entry.size for entry in manifest.files) - here, _SPARE_BYTES)
            (aside / MANIFEST).write_bytes(content)
            if signature:
                (aside / SIGNATURE).write_bytes(signature)

    def _forget(self, aside: Path) -> None:
        self._hashes.clear()
        disk.remove(aside)

    async def _file(self, where: str, aside: Path, entry: FileDigest) -> None:
        """Bring one file, whole and with the right digest."""
        done, part = aside / entry.name, aside / f".{entry.name}"
        if done.is_file() and done.stat().st_size == entry.size:
            return  # it has its name, so it was whole and right
        empty, downloads = 0, 0
        while True:
            start, digest = await anyio.to_thread.run_sync(self._so_far, part, entry.size)
            offset, problem = start, ""
            if offset < entry.size or entry.size == 0:
                problem = await self._stream(f"{where}/{entry.name}", part, entry.size, offset, digest)
                offset, digest = self._hashes.get(part, (0, hashlib.sha256()))
            if not problem and offset == entry.size:
                if digest.hexdigest() == entry.sha256:
                    part.rename(done)
                    self._hashes.pop(part, None)
                    return
                downloads += 1
                self.counts["corrupt"] += 1
                _log.error("weights_corrupt", file=entry.name, url=where, download=downloads)
                self._hashes.pop(part, None)
                part.unlink()
                if downloads >= _DOWNLOADS:
                    raise CheckpointRefused(
                        f"{where}/{entry.name} came {downloads} times without the sha256 of the signed manifest: it "
                        "was changed or damaged at the learner; bring its files back from a backup there"
                    )
                continue
            self.counts["cut"] += 1
            here = await anyio.to_thread.run_sync(_size, part)
            empty = 0 if here > start else empty + 1
            if empty >= _ATTEMPTS:
                raise WeightsUnavailable(f"{where}/{entry.name}: {problem or 'cut short'}; {here} bytes are here")
            _log.info("weights_cut", file=entry.name, at=here, reason=problem)
            await anyio.sleep(min(_LONGEST_WAIT, 0.1 * 2**empty))

    def _so_far(self, part: Path, size: int) -> tuple[int, "hashlib._Hash"]:
        """Length and digest of what is here of a file."""
        here = _size(part)
        if here > size:
            part.unlink()
            here = 0
        known = self._hashes.get(part)
        if known is not None and known[0] == here:
            return known
        digest = hashlib.sha256()
        if here:
            with part.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        self._hashes[part] = (here, digest)
        return here, digest

    async def _stream(self, url: str, part: Path, size: int, offset: int, digest: "hashlib._Hash") -> str:
        """Append what the server sends; why it ended early, empty if it did not."""
        headers = {"accept-encoding": "identity"}
        if offset:
            headers["range"] = f"bytes={offset}-"
        try:
            async with self._http.stream("GET", url, headers=headers, timeout=_SILENCE) as answer:
                problem = self._refusal(answer, url)
                if problem:
                    return problem
                if answer.status_code == 206:
                    if not answer.headers.get("content-range", "").startswith(f"bytes {offset}-"):
                        return f"content-range {answer.headers.get('content-range')!r}, {offset} was asked for"
                    self.counts["resumed"] += 1
                elif offset:  # a server, or a proxy, that knows no ranges
                    offset, digest = 0, hashlib.sha256()
                with disk.writing(part), part.open("r+b" if part.exists() else "w+b", buffering=0) as file:
                    file.truncate(offset)
                    file.seek(offset)
                    self._hashes[part] = (offset, digest)
                    pending = bytearray()
                    try:
                        async for piece in answer.aiter_raw():
                            pending += piece
                            if offset + len(pending) > size:
                                pending.clear()
                                return f"more than the manifest's {size} bytes"
                            if len(pending) < _BLOCK:
                                continue  # a turn through a thread costs more than what the network gives at a time
                            block, pending = pending, bytearray()
                            offset += len(block)
                            await anyio.to_thread.run_sync(self._append, part, file, digest, block, offset)
                    finally:
                        # Also when time is up: over a slow line a call may bring less than one block.
                        if pending:
                            offset += len(pending)
                            with anyio.CancelScope(shield=True):
                                await anyio.to_thread.run_sync(self._append, part, file, digest, pending, offset)
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return "" if offset == size else "the answer ended early"

    def _append(self, part: Path, file: BinaryIO, digest: "hashlib._Hash", block: bytearray, offset: int) -> None:
        # Until the block is on disk and counted, the file must be read again to know its digest.
        self._hashes.pop(part, None)
        with disk.writing(part):
            rest = memoryview(block)
            while rest:
                rest = rest[file.write(rest) :]
        digest.update(block)
        self._hashes[part] = (offset, digest)
        self.counts["bytes"] += len(block)

    async def _small(self, url: str, limit: int, missing: bytes | None = None) -> bytes:
        """A file that is held whole. Raises WeightsUnavailable: not after some attempts; CheckpointRefused: there is
        none, or it is larger than `limit`."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await anyio.sleep(min(_LONGEST_WAIT, 0.1 * 2**attempt))
            try:
                async with self._http.stream("GET", url, timeout=_SILENCE) as answer:
                    if answer.status_code == 404 and missing is not None:
                        return missing
                    problem = self._refusal(answer, url)
                    if problem:
                        continue
                    content = bytearray()
                    async for block in answer.aiter_bytes(_BLOCK):
                        content += block
                        if len(content) > limit:
                            raise CheckpointRefused(f"{url}: larger than {limit} bytes")
                    return bytes(content)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
        raise WeightsUnavailable(f"{url}: {problem}; is the learner up, and weights.source its weights.listen?")

    def _refusal(self, answer: httpx.Response, url: str) -> str:
        """What is wrong with an answer that another attempt may better; empty if nothing is. Raises
        CheckpointRefused: the learner has no such file; WeightsUnavailable: it wants another token."""
        status = answer.status_code
        if status in (200, 206):
            return ""
        if status == 404:
            raise CheckpointRefused(f"{url}: the learner does not have it, or not any more (keep.versions)")
        if status in (401, 403):
            raise WeightsUnavailable(f"{url}: {status}: the learner wants another token; see weights.token_file")
        return f"status {status}"


def _size(path: Path) -> int:
    """Bytes in a file, or in the files of a directory; 0 if there is none."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            return sum(child.stat().st_size for child in path.iterdir() if child.name not in (MANIFEST, SIGNATURE))
        return path.stat().st_size
    return 0
