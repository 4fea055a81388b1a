"""The dashboard's files: whole, small, from nowhere else, and under a policy that holds them to it."""

import re
from pathlib import Path

import httpx
import pytest

from daemon.dashboard import STATIC, Dashboard

pytestmark = pytest.mark.anyio
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())


async def test_every_file_comes_with_the_policy(tmp_path: Path) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Dashboard()), base_url="http://127.0.0.1") as http:
        for path in FILES:
            answer = await http.get(f"/{path.relative_to(STATIC)}")
            assert answer.status_code == 200
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await http.get("/")).text == (STATIC / "index.html").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_another_host_or_makes_markup_of_text_or_is_long(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 300
    for found in re.findall(r"https?://[^\s\"'`]+", text):
        assert found.startswith("http://www.w3.org/") or "…" in found, found
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\sstyle=|\son\w+=\"", text)


def test_every_module_that_is_imported_is_there() -> None:
    for path in FILES:
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text()) if path.suffix == ".js" else ():
            assert (path.parent / name).is_file(), f"{path.name}: {name}"
