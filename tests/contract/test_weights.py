"""Both ways of bringing weights to an engine: what they promise, and what HTTP alone can go wrong with.

The server is the learner's own application behind hypercorn, on a real port; the way to it can be cut, and can flip a
bit.
"""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from actors.messages import Manifest
from actors.messages.signing import SigningKey
from actors.ports.errors import CheckpointRefused, WeightsDiskFull, WeightsUnavailable
from adapters.weights import Weights, WeightSource
from adapters.weights.http import HttpPull
from adapters.weights.shared import SharedPath
from daemon.errors import ConfigError
from daemon.settings import tables
from daemon.upkeep.provenance import Provenance
from daemon.upkeep.weights import server, source
from learner.versions import Versions
from tests.support.full_disk import full_disk
from tests.support.keys import key_pair
from tests.support.patience import until
from tests.support.served import served

pytestmark = pytest.mark.anyio
FLOATS = 1_500_000
"""Of the weights: 6 MB, more than any buffer on the way holds."""


class Line(httpx.AsyncHTTPTransport):
    """To the server; cuts the next answers with weights after so many bytes, flips one of them, or takes `seconds` for
    each 64 KiB."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts, self.flip, self.seconds = list[int](), -1, 0.0
        self.ranges = list[int]()
        """Where requests for a part of the weights began."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if request.url.path.endswith("model.safetensors"):
            if "range" in request.headers:
                self.ranges.append(int(request.headers["range"].removeprefix("bytes=").removesuffix("-")))
            answer.stream = Spoilt(answer.stream, self)
        return answer


class Spoilt(httpx.AsyncByteStream):
    def __init__(self, stream: Any, line: Line) -> None:
        self._stream, self._line = stream, line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        passed, cut = 0, self._line.cuts.pop(0) if self._line.cuts else None
        async for block in self._stream:
            at = self._line.flip - passed
            if 0 <= at < len(block):
                block = block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :]
                self._line.flip = -1
            if cut is not None and passed + len(block) > cut:
                yield block[: cut - passed]
                raise httpx.RemoteProtocolError("the learner closed the connection")
            passed += len(block)
            await anyio.sleep(self._line.seconds)
            yield block

    async def aclose(self) -> None:
        await self._stream.aclose()


class Nodes:
    """A learner's node and an engines' node, and what lies between."""

    def __init__(self, root: Path, url: str, token: str) -> None:
        self.there, self.here, self.url, self.token = root / "learner" / "versions", root / "here", url, token
        self.line = Line()
        self.key, self.keys = key_pair(root / "keys")
        self.versions = Versions(self.there, key=self.key)

    def write(self, version: int, *, key: SigningKey | None = None) -> str:
        """Make a version at the learner; sha256 of its manifest."""
        rest = self.there.parent / "base"
        rest.mkdir(parents=True, exist_ok=True)
        (rest / "config.json").write_text("{}")
        weights = {"w": np.random.default_rng(version).standard_normal(FLOATS).astype(np.float32)}
        Versions(self.there, key=key or self.key).write(
            version, version - 1, lambda aside: save_file(weights, aside / "model.safetensors") or (),
            rest=rest, batch_ids=("b",), metrics={}, created=1.0,
        )  # fmt: skip
        return self.versions.candidate(version).manifest

    def forge(self, version: int, **changes: Any) -> None:
        """Change the manifest and sign it again, as a learner would that was taken over."""
        path = self.versions.path(version)
        manifest = msgspec.json.decode((path / "manifest.json").read_bytes(), type=Manifest)
        content = msgspec.json.encode(msgspec.structs.replace(manifest, **changes))
        (path / "manifest.json").write_bytes(content)
        (path / "manifest.sig").write_text(self.key.sign("manifest", content))

    def check(self, content: bytes, signature: str) -> str:
        return self.keys.problem("manifest", content, signature)

    def shared(self) -> SharedPath:
        return SharedPath(check=self.check)

    def pull(self, keep: int = 8) -> HttpPull:
        http = httpx.AsyncClient(headers={"authorization": f"Bearer {self.token}"}, transport=self.line)
        return HttpPull(self.url, self.here, keep=keep, check=self.check, http=http)

    def left(self) -> list[str]:
        """What is on the engines' node."""
        return sorted(path.name for path in self.here.iterdir()) if self.here.is_dir() else []

    def same(self, found: Weights, version: int) -> bool:
        names = [path.name for path in self.versions.path(version).iterdir()]
        return sorted(names) == sorted(path.name for path in found.path.iterdir()) and all(
            (found.path / name).read_bytes() == (self.versions.path(version) / name).read_bytes() for name in names
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is none, and nobody insists for long."""
    monkeypatch.setattr("adapters.weights.http._SPARE_BYTES", 0)
    monkeypatch.setattr("adapters.weights.http._ATTEMPTS", 3)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    (tmp_path / "token").write_text("t" * 40 + "\n")
    with served(server("127.0.0.1", str(tmp_path / "token"), tmp_path / "learner" / "versions")) as url:
        nodes = Nodes(tmp_path, url, "t" * 40)
        async with nodes.line:
            yield nodes


@pytest.fixture(params=["shared", "http"])
async def way(request: pytest.FixtureRequest, nodes: Nodes) -> WeightSource:
    return nodes.shared() if request.param == "shared" else nodes.pull()


async def test_what_comes_is_what_the_learner_wrote(way: WeightSource, nodes: Nodes):
    manifest = nodes.write(3)
    found = await way.fetch(nodes.versions.path(3), 3, manifest)
    assert found.manifest == manifest
    assert nodes.same(found, 3)
    assert await way.fetch(nodes.versions.path(3), 3) == found


async def test_another_manifest_than_the_one_that_is_meant_is_refused(way: WeightSource, nodes: Nodes, tmp_path: Path):
    nodes.write(3)
    shutil.copytree(nodes.versions.path(3), nodes.versions.path(4))
    nodes.write(5, key=key_pair(tmp_path / "other")[0])
    for version, judged, says in (
        (3, "ab" * 32, "not the one that was judged"),
        (4, "", "of version 3, 4 was meant"),
        (5, "", r"none of the keys in .*public\.pem"),
    ):
        with pytest.raises(CheckpointRefused, match=says):
            await way.fetch(nodes.versions.path(version), version, judged)
    assert nodes.left() == []


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "..", ".hidden", "a/b", "manifest.json", ""])
async def test_a_manifest_must_not_reach_out_of_its_directory(way: WeightSource, nodes: Nodes, name: str):
    nodes.write(3)
    entry = msgspec.structs.replace(nodes.versions.read(3).files[0], name=name)
    nodes.forge(3, files=(entry,))
    with pytest.raises(CheckpointRefused, match="a file that must not be"):
        await way.fetch(nodes.versions.path(3), 3)
    assert nodes.left() == []


async def test_a_connection_that_is_cut_in_mid_file_goes_on_where_it_was(nodes: Nodes):
    manifest = nodes.write(3)
    nodes.line.cuts = [2_000_000, 1_500_000]
    pull = nodes.pull()
    assert nodes.same(await pull.fetch(Path("/learner/v000003"), 3, manifest), 3)
    assert nodes.line.ranges == [2_000_000, 3_500_000]
    assert (pull.counts["cut"], pull.counts["resumed"], pull.counts["corrupt"]) == (2, 2, 0)
    assert nodes.left() == ["v000003"]


async def test_a_learner_that_stays_away_is_told_and_a_new_process_goes_on_from_what_is_here(nodes: Nodes):
    manifest = nodes.write(3)
    nodes.line.cuts = [2_000_000, *[0] * 9]
    with pytest.raises(WeightsUnavailable, match="bytes are here"):
        await nodes.pull().fetch(Path("/gone"), 3, manifest)
    assert nodes.left() == [".v000003.pull"]
    nodes.line.cuts.clear()
    again = nodes.pull()
    assert nodes.same(await again.fetch(Path("/gone"), 3, manifest), 3)
    assert again.counts["bytes"] < 4_500_000 < FLOATS * 4
    assert nodes.left() == ["v000003"]


async def test_one_flipped_byte_is_found_and_the_file_fetched_again(nodes: Nodes):
    manifest = nodes.write(3)
    nodes.line.flip = 3_000_000
    pull = nodes.pull()
    assert nodes.same(await pull.fetch(Path("/any"), 3, manifest), 3)
    assert pull.counts["corrupt"] == 1


async def test_weights_that_were_changed_at_the_learner_never_appear(nodes: Nodes):
    before, manifest = nodes.write(2), nodes.write(3)
    pull = nodes.pull()
    served = await pull.fetch(Path("/any"), 2, before)
    path = nodes.versions.path(3) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointRefused, match=r"model.safetensors came 2 times.*from a backup"):
        await pull.fetch(Path("/any"), 3, manifest)
    assert "v000003" not in nodes.left()
    assert nodes.same(served, 2)


async def test_a_pull_that_takes_too_long_says_how_far_it_is_and_goes_on_at_the_next_call(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
):
    manifest = nodes.write(3)
    monkeypatch.setattr("adapters.weights.http._CALL_SECONDS", 0.5)
    nodes.line.seconds = 1 / 64
    pull = nodes.pull()
    told: list[str] = []

    async def whole() -> bool:
        try:
            return nodes.same(await pull.fetch(Path("/any"), 3, manifest), 3)
        except WeightsUnavailable as error:
            told.append(str(error))
            return False

    await until(whole, "one call after the other, the version is here")
    assert re.search(r"v000003 is on its way, [1-9]\d{5,6} bytes are here", told[-1])
    assert pull.counts["pulled"] == 1
    assert pull.counts["unfinished"] == len(told) >= 2
    assert pull.counts["bytes"] < FLOATS * 4 * 1.2


async def test_a_disk_that_has_no_room_is_told_before_anything_is_fetched(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
):
    manifest = nodes.write(3)
    monkeypatch.setattr("adapters.weights.http._SPARE_BYTES", 1 << 60)
    pull = nodes.pull()
    with pytest.raises(WeightsDiskFull, match=r"keep\.versions"):
        await pull.fetch(Path("/any"), 3, manifest)
    assert pull.counts["bytes"] == 0
    assert pull.counts["disk_full"] == 1


async def test_a_disk_that_fills_up_in_mid_file_costs_the_pull_alone(nodes: Nodes):
    before, manifest = nodes.write(2), nodes.write(3)
    pull = nodes.pull()
    served = await pull.fetch(Path("/any"), 2, before)
    with full_disk(2_000_000), pytest.raises(WeightsDiskFull, match="what serves is untouched"):
        await pull.fetch(Path("/any"), 3, manifest)
    assert nodes.left() == ["v000002"]
    assert nodes.same(served, 2)
    assert nodes.same(await pull.fetch(Path("/any"), 3, manifest), 3)


async def test_old_versions_and_pieces_of_others_go_but_not_what_is_pinned(nodes: Nodes):
    nodes.here.mkdir()
    (nodes.here / "pinned").write_text("1 serving\n")
    for version in (7, 8, 9):
        (nodes.here / f".v{version:06d}.pull").mkdir()
    pull = nodes.pull(keep=2)
    for version in range(5):
        nodes.write(version)
        await pull.fetch(Path("/any"), version)
    assert [name for name in nodes.left() if name.startswith("v")] == ["v000000", "v000001", "v000003", "v000004"]
    assert sum(name.endswith(".pull") for name in nodes.left()) == 1


async def test_two_that_ask_at_once_pull_once(nodes: Nodes):
    manifest = nodes.write(3)
    pull = nodes.pull()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(pull.fetch, Path("/any"), 3, manifest)
    assert pull.counts["pulled"] == 1


async def test_a_wrong_token_is_told_and_a_page_without_one_sees_nothing(nodes: Nodes):
    nodes.write(3)
    nodes.token = "x" * 40
    with pytest.raises(WeightsUnavailable, match=r"weights.token_file"):
        await nodes.pull().fetch(Path("/any"), 3)
    async with httpx.AsyncClient(trust_env=False) as anybody:
        assert (await anybody.get(f"{nodes.url}/v000003/model.safetensors")).status_code == 401


@pytest.mark.parametrize(
    "path",
    ["v000003/../pinned", "v000003/%2e%2e%2fpinned", "v000003/secret", "..%2fbase/config.json", "pinned", "v3/x"],
)
async def test_the_server_gives_only_what_a_manifest_names(nodes: Nodes, path: str):
    nodes.write(3)
    (nodes.there / "pinned").write_text("3\n")
    (nodes.versions.path(3) / "secret").write_text("x")
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {nodes.token}"}, trust_env=False) as http:
        assert (await http.get(f"{nodes.url}/{path}")).status_code == 404


async def test_a_server_that_others_can_reach_wants_a_token(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"weights.token_file"):
        server("0.0.0.0", "", tmp_path)
    (tmp_path / "short").write_text("short")
    with pytest.raises(ConfigError, match="32 characters"):
        server("127.0.0.1", str(tmp_path / "short"), tmp_path)


async def test_the_daemon_pulls_with_the_keys_of_its_settings(nodes: Nodes, tmp_path: Path):
    manifest = nodes.write(3)
    state = tmp_path / "state"
    settings = tables.Weights("", nodes.url + "/", str(tmp_path / "token"))
    check = Provenance(state).manifest_check()
    way, http = source(settings, state / "versions", keep=8, check=check)
    assert http is not None
    async with http:
        with pytest.raises(WeightsUnavailable, match=r"learner-public.pem"):
            await way.fetch(Path("/any"), 3, manifest)
        (state / "keys").mkdir(parents=True)
        (state / "keys" / "learner-public.pem").write_text(nodes.key.public_pem)
        found = await way.fetch(Path("/any"), 3, manifest)
    assert found.path == state / "versions" / "v000003"
    assert nodes.same(found, 3)
