"""The dashboard's files: whole, small, from nowhere else, and under a policy that holds them to it."""

import re
from pathlib import Path

import pytest

from daemon.dashboard import STATIC
from tests.support.experience import Desk

pytestmark = pytest.mark.anyio
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())


async def test_every_file_comes_with_the_policy_and_none_from_outside_their_directory(tmp_path: Path) -> None:
    async with Desk(None, tmp_path).http() as http:  # type: ignore[arg-type]  # no route is asked that needs a store
        for path in FILES:
            answer = await http.get(f"/{path.relative_to(STATIC)}")
            assert answer.status_code == 200
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
        for path in ("/../control.py", "/%2e%2e/control.py", "/..%2f..%2fcontrol.py", "//etc/passwd", "/%2fetc/passwd"):
            assert (await http.get(path)).status_code == 404, path
        assert (await http.get("/")).text == (STATIC / "index.html").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_another_host_or_makes_markup_of_text_or_is_long(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 300
    for found in re.findall(r"https?://[^\s\"'`]+", text):
        assert found.startswith("http://www.w3.org/") or "…" in found, found
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\sstyle=|\son\w+=\"", text)
