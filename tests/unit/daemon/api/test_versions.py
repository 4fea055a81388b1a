"""Versions are told as `evolved history` and `why` tell them, with what a swap cost and whether it is signed."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from actors.messages import Serving, Verdict
from actors.messages.signing import sign
from actors.store import Store
from tests.support.experience import Desk
from tests.support.fakes import candidate
from tests.support.keys import key_pair

pytestmark = pytest.mark.anyio


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()
    key, _ = key_pair(tmp_path / "signing")
    for number in (1, 2):
        made = candidate(number, tmp_path / "versions" / f"v{number:06d}")
        verdict = Verdict(
            id=f"d{number}", version=number, path=made.path, manifest=made.manifest, incumbent=number - 1,
            decision="promote", reason="measured", measurements={"success": 0.7, "drift_kl": 0.1}, created=number + 0.5,
        )  # fmt: skip
        await store.save([made, sign(verdict, key) if number == 1 else verdict])
    swap = Serving(
        id="s1", engine="a", version=1, previous=0, path="p", result="swapped", since=1.7, paused_seconds=0.05
    )
    refused = Serving(id="s2", engine="a", version=2, previous=1, path="p", result="refused", since=2.7, reason="full")
    await store.save([swap, refused])
    async with Desk(store, tmp_path).http() as http:
        yield http
    await store.aclose()


async def test_the_list_has_the_newest_first_with_verdict_swap_and_setback(http: httpx.AsyncClient) -> None:
    told = (await http.get("/api/versions")).json()
    second, first = told["versions"]
    assert (told["all"], second["version"], first["version"]) == (2, 2, 1)
    assert first["verdict"]["measurements"] == {"success": 0.7}, "the list has headlines only"
    assert first["swaps"][0]["paused_seconds"] == 0.05
    assert first["served"] == [{"engine": "a", "since": 1.7, "until": None}]
    assert second["setbacks"] == [{"at": 2.7, "kind": "refused", "who": "a", "reason": "full"}]
    assert len((await http.get("/api/versions?limit=1")).json()["versions"]) == 1


async def test_one_has_every_measurement_and_says_what_is_not_signed(http: httpx.AsyncClient) -> None:
    first = (await http.get("/api/versions/1")).json()
    second = (await http.get("/api/versions/2")).json()
    assert first["verdicts"][0]["measurements"] == {"success": 0.7, "drift_kl": 0.1}
    assert first["verdicts"][0]["signature_problem"] == ""
    assert second["verdicts"][0]["signature_problem"] != ""
    assert [one["version"] for one in second["ancestry"]] == [1, 0]
    assert first["on_disk"] is True


async def test_a_version_that_is_not_there_is_404_and_a_limit_that_is_none_422(http: httpx.AsyncClient) -> None:
    for path in ("9", "two", "9" * 30):
        assert (await http.get(f"/api/versions/{path}")).status_code == 404
    assert (await http.get("/api/versions?limit=0")).status_code == 422
