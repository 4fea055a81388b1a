"""The command line in this process, over a state directory of its own."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.messages import BatchOrder, Directive, Serving, Verdict
from actors.messages.signing import sign
from actors.store import Store
from daemon.cli.main import main
from daemon.settings.reading import load
from daemon.upkeep.provenance import Provenance
from learner.versions import Versions
from tests.support import checkpoints
from tests.support.credited import attributed
from tests.support.ports import free_port


class Evolved:
    """`evolved`, with settings that name `directory` for its state, and no daemon that answers."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self._capsys = directory, capsys

    def __call__(self, command: str, status: int = 0) -> Any:
        """What it prints: `out` and `err`."""
        self._capsys.readouterr()
        ended = main(shlex.split(command))
        told = self._capsys.readouterr()
        assert ended == status, told
        return told

    def json(self, command: str, status: int = 0) -> Any:
        return json.loads(self(f"{command} --json", status).out)


@pytest.fixture
def evolved(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Evolved:
    (tmp_path / "config.toml").write_text(f'state_dir = "{tmp_path}"\n[control]\nlisten = "127.0.0.1:{free_port()}"\n')
    monkeypatch.setenv("EVOLVED_CONFIG", str(tmp_path / "config.toml"))
    return Evolved(tmp_path, capsys)


REASON = "success fell [/x] [bold fell [red]:warning:\\"
"""As it was written, whatever it looks like."""
MEASURED = {"success": 0.75, "tasks": 96.0}


@pytest.fixture
def versions(evolved: Evolved, tmp_path: Path) -> Evolved:
    """Version 1 was trained on two trajectories, judged, served, taken back; version 0 serves again."""
    config = load(None, [f"state_dir={tmp_path}"])
    provenance = Provenance(tmp_path)
    base = checkpoints.write(tmp_path / "base", 1)
    written = Versions(tmp_path / "versions", key=provenance.key("learner"))
    for version in (0, 1):
        written.write(
            version, version - 1,
            lambda aside: shutil.copy(base / "model.safetensors", aside) and (),
            rest=base, batch_ids=("b",) if version else (), metrics={"kl_old": 0.01}, created=10.0 + version,
        )  # fmt: skip
    first, second = written.candidate(0), written.candidate(1)
    verdict = Verdict(
        id="j", version=1, path=second.path, manifest=second.manifest, incumbent=0, decision="promote", reason="better",
        measurements=MEASURED, created=12.0,
    )  # fmt: skip

    def serving(version: int, since: float, result: str = "swapped") -> Serving:
        return Serving(
            id=f"s{since}", engine="serving", version=version, previous=0, path="", result=result, since=since,
            reason="canary" if result == "rolled_back" else "",
        )  # fmt: skip

    records = [
        attributed("t1"), attributed("t2"),
        BatchOrder(id="b", path="", sha256="", size=0, trajectories=("t1", "t2"), created=9.0),
        first, second, sign(verdict, provenance.key("gate")), serving(0, 5.0, "started"), serving(1, 20.0),
        Directive(id="d", kind="rollback", reason=REASON, origin="sentinel", created=29.0,
                  details={"version": "1", "to": "0"}),
        serving(0, 30.0), serving(1, 40.0, "rolled_back"),
    ]  # fmt: skip

    async def fill() -> None:
        store = Store(config.store_url, clock=lambda: 50.0)
        await store.open()
        await store.save(records)
        await store.aclose()

    anyio.run(fill)
    return evolved
