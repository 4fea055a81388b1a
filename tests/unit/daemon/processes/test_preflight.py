"""What is told before a process starts its parts."""

import errno
import socket
from pathlib import Path

import pytest

from daemon.errors import StartFailed
from daemon.processes import preflight
from daemon.settings.reading import load


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on its disk"),
        (errno.EROFS, "mount its file system for writing"),
        (errno.ENOTDIR, "set state_dir to a directory"),
        (errno.EACCES, "chown -R evolved"),
    ],
)
def test_a_state_directory_that_cannot_be_used_is_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refused(path: Path, data: bytes) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(Path, "write_bytes", refused)
    with pytest.raises(StartFailed, match=f"state_dir {tmp_path}: no; .*{remedy}"):
        preflight.state_directory(load(None, [f"state_dir={tmp_path}"]))


@pytest.mark.parametrize("setting", ["control.listen", "otlp.listen"])
def test_a_port_that_somebody_else_has_is_told_by_its_setting(tmp_path: Path, setting: str) -> None:
    told = [f"state_dir={tmp_path}", "control.listen=127.0.0.1:0"]
    preflight.daemon(load(None, told))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StartFailed, match=rf"{setting} = '127\.0\.0\.1:{port}': .*ss -ltnp"):
            preflight.daemon(load(None, [*told, f"{setting}=127.0.0.1:{port}"]))
