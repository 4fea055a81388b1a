"""What evolved runs on: the packages of a lock file, with the licence that each one's own metadata states.

    locks/base.txt + installed metadata -> `components` -> `ops.supply.sbom` (make sbom), `ops.supply.licences`

Nothing is asked of the network. Licences are SPDX expressions (spdx.org/licenses); metadata from before PEP 639 states
them in classifiers, which `_CLASSIFIERS` reads.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0",
    "Unlicense", "Zlib",
}  # fmt: skip
"""Permissive ones, and MPL-2.0, which binds only changes to the package's own files."""
EXCEPTIONS = {"python-stdnum": "LGPL-2.1-or-later"}
"""By package: used as it is, as a library that anybody can replace, which the LGPL permits."""
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "ISC License (ISCL)": "ISC",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.1-or-later",
}
_STATED = {"3-Clause BSD License": "BSD-3-Clause"}
_READ = {"jinja2": "BSD-3-Clause"}
"""By package: its metadata says "BSD License" alone; which one stands in its licence file."""
_LOCKED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)\s*(?:;\s*([^\\\n]*?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Component:
    """A package of the lock."""

    name: str
    version: str
    marker: str
    """Where it is installed; empty: everywhere."""
    hashes: tuple[str, ...] = field(repr=False)
    """SHA-256 of the files that the lock accepts."""
    licence: str
    """SPDX expression; empty: it is not installed here, so that nobody could read it."""
    needs: tuple[str, ...]
    """Names of packages that it asks for."""


def components(lock: Path) -> list[Component]:
    """The packages of `lock`, by name and version."""
    found: list[Component] = []
    name = version = marker = ""
    hashes: list[str] = []

    def close() -> None:
        if name:
            licence, needs = _read(name)
            found.append(Component(name, version, marker, tuple(hashes), licence, needs))

    for line in lock.read_text().splitlines():
        start = _LOCKED.match(line)
        if start:
            close()
            name, version, marker, hashes = normal(start[1]), start[2], start[3] or "", []
        elif digest := _HASH.search(line):
            hashes.append(digest[1])
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"{lock}: cannot read {line!r}")
    close()
    return sorted(found, key=lambda one: (one.name, one.version))


def refused(found: Sequence[Component]) -> list[str]:
    """What is wrong with the licences of `found`, a line for each package, with the remedy."""
    wrong: list[str] = []
    for one in found:
        if not one.licence:
            if not one.marker:
                wrong.append(f"{one.name}: is in the lock and not installed, or states no licence; run make setup")
        elif not allowed(one.name, one.licence):
            wrong.append(
                f"{one.name}: {one.licence} is not allowed; do without it, or add it to ops/supply/components.py with "
                "the reason"
            )
    return wrong


def allowed(name: str, licence: str) -> bool:
    """Whether one of its alternatives (OR) has only parts (AND) that are allowed."""
    if EXCEPTIONS.get(name) == licence:
        return True
    return any(all(part.strip("() ") in ALLOWED for part in one.split(" AND ")) for one in licence.split(" OR "))


def normal(name: str) -> str:
    """A package's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(name: str) -> tuple[str, tuple[str, ...]]:
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return "", ()
    wanted = (re.match(r"[A-Za-z0-9._-]+", line) for line in metadata.requires(name) or () if "extra ==" not in line)
    return _READ.get(name) or _licence(told), tuple(sorted({normal(match[0]) for match in wanted if match}))


def _licence(told: metadata.PackageMetadata) -> str:
    if expression := told.get("License-Expression"):
        return expression
    words = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or () if line.startswith("License ::")]
    known = sorted({_CLASSIFIERS[word] for word in words if word in _CLASSIFIERS})
    if known:
        return " OR ".join(known)  # two classifiers: the packages that have them are under either
    stated = (told.get("License") or "").partition("\n")[0].strip()
    return _STATED.get(stated, stated) or " AND ".join(words)
