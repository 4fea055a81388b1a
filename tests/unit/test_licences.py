"""What evolved runs on: each package has a licence that is allowed, and the bill of materials is exactly the lock."""

from pathlib import Path

import pytest

from ops.supply.components import Component, allowed, components, refused
from ops.supply.licences import LOCK, PAGE, page
from ops.supply.sbom import bill


@pytest.fixture(scope="module")
def found() -> list[Component]:
    return components(LOCK)


def test_every_locked_package_has_a_licence_that_is_allowed(found: list[Component]) -> None:
    assert len(found) > 50
    assert refused(found) == []


def test_the_page_of_licences_is_what_make_licences_writes(found: list[Component]) -> None:
    assert PAGE.read_text() == page(found), "run: make licences"


@pytest.mark.parametrize(
    ("name", "licence", "may"),
    [
        ("x", "MIT", True),
        ("x", "MIT OR GPL-3.0-only", True),
        ("x", "MIT AND GPL-3.0-only", False),
        ("x", "(MIT AND Zlib) OR GPL-3.0-only", True),
        ("x", "LGPL-2.1-or-later", False),
        ("python-stdnum", "LGPL-2.1-or-later", True),
        ("python-stdnum", "AGPL-3.0-only", False),
        ("x", "UNKNOWN", False),
    ],
)
def test_what_is_allowed(name: str, licence: str, may: bool) -> None:
    assert allowed(name, licence) == may


def test_a_package_that_is_not_allowed_or_not_known_is_named_with_the_remedy(tmp_path: Path) -> None:
    made = [
        Component("copyleft", "1", "", (), "AGPL-3.0-only", ()),
        Component("nobody-knows", "1", "", (), "", ()),
        Component("elsewhere", "1", "sys_platform == 'win32'", (), "", ()),
    ]
    first, second = refused(made)
    assert "copyleft: AGPL-3.0-only is not allowed; do without it" in first
    assert second.startswith("nobody-knows: is in the lock and not installed")
    lock = tmp_path / "lock.txt"
    lock.write_text("starlette>=1 \\\n")
    with pytest.raises(ValueError, match="cannot read"):
        components(lock)


def test_the_bill_of_materials_names_each_locked_file_and_no_stranger(found: list[Component]) -> None:
    made = bill(found)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    refs = [one["bom-ref"] for one in made["components"]]
    assert len(set(refs)) == len(refs) == len(found)
    named = {
        one["value"] for part in made["components"] for one in part["properties"] if one["name"].endswith("sha256")
    }
    lock = LOCK.read_text()
    assert len(named) == len({word for word in lock.split() if word.startswith("--hash=sha256:")})
    assert all(digest in lock for digest in named)
    for edge in made["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= {*refs, "evolved"}
    assert bill(found) == made
