"""`evolved install --system`: what it writes, and what it leaves alone."""

import json
import re
from pathlib import Path

import pytest

from daemon.cli.main import main
from daemon.errors import CommandFailed
from daemon.settings.reading import load
from daemon.settings.tables import Config
from daemon.upkeep import install

PROGRAM = Path("/opt/evolved/bin/evolved")


def plan(units=install.USUAL, config: Config | None = None) -> dict[str, bytes]:
    settings = install.example()
    return install.plan(config or load(settings), settings.read_bytes(), units, PROGRAM)


def everything_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_the_command_shows_what_it_would_write_and_writes_it(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.prefix", "/opt/evolved")
    assert main(["install", "--system", "--root", str(tmp_path), "--dry-run", "--json"]) == 0
    assert "/etc/systemd/system/evolved-tap.socket" in json.loads(capsys.readouterr().out)["would_write"]
    assert everything_below(tmp_path) == set()
    assert main(["install", "--system", "--root", str(tmp_path)]) == 0
    assert everything_below(tmp_path) == {
        "etc/systemd/system/evolved.target", "etc/systemd/system/evolved.slice",
        "etc/systemd/system/evolved-tap.socket", "etc/systemd/system/evolved-tap@.service",
        "etc/systemd/system/evolved-broker.service", "etc/systemd/system/evolved-daemon.service",
        "etc/sysusers.d/evolved.conf", "etc/tmpfiles.d/evolved.conf", "etc/evolved/config.toml",
    }  # fmt: skip
    assert (tmp_path / install.CREDENTIALS).stat().st_mode & 0o777 == 0o700
    assert main(["install", "--system", "--root", str(tmp_path), "--units", "learner"]) == 0
    assert "evolved-learner.service" in capsys.readouterr().out


def test_units_name_the_program_the_settings_and_where_the_tap_listens(tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text('[tap]\nlisten = "[::1]:9000"\n')
    files = plan(install.UNITS, load(settings))
    text = {Path(name).name: content.decode() for name, content in files.items()}
    assert "ListenStream=[::1]:9000\n" in text["evolved-tap.socket"]
    assert f"ExecStart={PROGRAM} tap --number %i --config /etc/evolved/config.toml\n" in text["evolved-tap@.service"]
    for unit in ("broker", "learner"):
        assert f"ExecStart={PROGRAM} {unit} --config /etc/evolved/config.toml\n" in text[f"evolved-{unit}.service"]
    known = re.compile("@(system-service|privileged|resources|[0-9])")
    assert not [name for name, content in text.items() if "@" in known.sub("", content)]


def test_installing_again_brings_units_up_to_date_and_leaves_changed_settings(tmp_path: Path) -> None:
    install.install(plan(), tmp_path)
    (tmp_path / "etc/evolved/config.toml").write_text('[tap]\nlisten = "127.0.0.1:9001"\n')
    unit = tmp_path / "etc/systemd/system/evolved-tap@.service"
    unit.write_text("of an older release")
    install.install(plan(), tmp_path)
    assert "ExecStart" in unit.read_text()
    assert (tmp_path / "etc/evolved/config.toml").read_text() == '[tap]\nlisten = "127.0.0.1:9001"\n'


@pytest.mark.parametrize("place", ["/home/me/.venv", "/root/venv", "/tmp/venv"])
def test_a_program_that_the_services_could_not_see_is_refused(place: str) -> None:
    with pytest.raises(CommandFailed, match="cannot be seen by the services"):
        install.plan(load(None), b"", program=Path(place) / "bin" / "evolved")


def test_what_cannot_be_installed_is_said() -> None:
    with pytest.raises(CommandFailed, match=r"state_dir = .state. is relative.*/var/lib/evolved"):
        plan(config=load(None, ["state_dir=state"]))
    with pytest.raises(CommandFailed, match="no unit 'taps'; there are tap"):
        plan(("taps",))
