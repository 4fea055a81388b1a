"""What pages say outside of blocks: commands, settings, links and pictures that exist."""

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from daemon.settings.tables import Config
from tests.docs.blocks import ROOT, pages, prose
from tests.docs.commands import faults, mentioned_faults

_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]\[]*\]\(([^)\s]+)\)")
_SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)+")
_FILE = re.compile(r"\.(py|md|toml|yml|json|jsonl|log|safetensors|db|pem|sig|sh)$")
_PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}


def _is_setting(name: str) -> bool:
    kind: object = Config
    for part in name.split("."):
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return True  # below a table of free keys
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if part not in fields:
            return False
        kind = next((one for one in get_args(fields[part]) if isinstance(one, type)), fields[part])
    return True


def _is_code(name: str) -> bool:
    """`learner.loss.token_shares` and such: modules of ours, and what is in them."""
    parts = name.split(".")
    ends = [ROOT.joinpath(*parts[:length]) for length in range(2, len(parts) + 1)]
    return any(end.with_suffix(".py").exists() or end.is_dir() for end in ends)


def _commands(page: Path) -> Iterator[str]:
    for code in _CODE.findall(re.sub(r"\n\s*", " ", prose(page))):
        if code.startswith("evolved ") and not re.match(r"evolved (-|[a-z]+_)", code):
            yield from mentioned_faults(code)
        elif code.startswith(("make ", "python -m ")):
            yield from faults(re.sub(r"[\[\]]", " ", code).split())


def _settings(page: Path) -> Iterator[str]:
    sections = {field.name for field in msgspec.structs.fields(Config)}
    for name in (code.partition(" ")[0] for code in _CODE.findall(prose(page))):
        named = _SETTING.fullmatch(name) and name.partition(".")[0] in sections and not _FILE.search(name)
        if named and not _is_setting(name) and not _is_code(name):
            yield name


def _links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", target):
            continue
        if not found.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in _anchors(found):
            yield f"{target}: no such section; there are {', '.join(sorted(_anchors(found)))}"


def _files(page: Path) -> Iterator[str]:
    """Files of the repository, and functions in them."""
    for name in _CODE.findall(prose(page)):
        ours = re.fullmatch(r"(actors|adapters|daemon|docs|learner|locks|ops|tests)/[\w./-]+", name)
        if ours and not (ROOT / name).exists():
            yield name
    for path, name in re.findall(r"\b((?:actors|adapters|daemon|learner)/[\w/]+\.py):(\w+)", page.read_text()):
        if not re.search(rf"(def|class) {name}\b", (ROOT / path).read_text()):
            yield f"{path}:{name}"


@pytest.mark.parametrize("missing", [_commands, _settings, _links, _files], ids=lambda check: check.__name__[1:])
@pytest.mark.parametrize("page", _PAGES)
def test_what_prose_names_exists(page: Path, missing: Callable[[Path], Iterator[str]]) -> None:
    assert list(missing(page)) == []


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(_LINK.findall((ROOT / "docs" / "index.md").read_text()))
    there = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert there <= listed


def test_the_documentation_does_not_grow_back() -> None:
    """A ratchet: fewer is always right, more wants something else to go. The aim is 13 pages and 2,600 lines in all."""
    written = [page.read_text() for page in (ROOT / "docs").glob("*.md")]
    assert len(written) <= 13
    assert sum(text.count("\n") for text in written) <= 3_150
    assert sum(len(text.split()) for text in written) <= 30_150


def test_make_help_tells_of_every_target_that_is_no_file() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.M)
    assert phony is not None
    told = re.findall(r"^([a-z][\w-]*):.*## ", makefile, re.M)
    assert set(phony[1].split()) - set(told) == {"bfcl", "appworld", "clients"}, "these only set a suite up"


def test_the_readme_names_the_python_that_the_package_needs() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"Python {said.removeprefix('>=')}" in (ROOT / "README.md").read_text()
