"""`evolved install --system`: writes what systemd needs to run evolved on this machine, and takes it back.

    ops/systemd/*  ->  /etc/systemd/system, /etc/sysusers.d, /etc/evolved  ->  a list of what was written

Nothing is overwritten that is not ours: a file that is there already and is not on the list is left, and named. What
an administrator changed in a file of ours is kept beside it when it goes.
"""

import hashlib
import importlib.resources
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from daemon.errors import InstallRefused
from daemon.settings.tables import Config

UNITS = ("tap", "broker", "daemon", "learner", "engine")
"""What there is a service of."""
USUAL = ("tap", "broker", "daemon")
"""What a machine without a GPU runs."""
SYSTEM = Path("etc/systemd/system")
SETTINGS = Path("etc/evolved")
CREDENTIALS = SETTINGS / "credentials"
ENGINE_CREDENTIALS = SETTINGS / "engine-credentials"
STATE = Path("var/lib/evolved")
ENGINE_STATE = Path("var/lib/evolved-engine")
USERS = ("evolved", "evolved-engine")
DIRECTORIES = "/etc/tmpfiles.d/evolved.conf"
"""What systemd-tmpfiles makes of them."""
_LIST = SETTINGS / "installed.json"
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - named, not written to
"""What ProtectHome= and PrivateTmp= hide from the services."""
_ENGINE = "EVOLVED_ENGINE_ARGUMENTS=--vllm /srv/models/YOUR-MODEL --port 8000\n"


class Written(msgspec.Struct, frozen=True):
    """One file of an installation."""

    path: str
    """Absolute, as the services see it."""
    sha256: str
    mode: int


class Installed(msgspec.Struct, frozen=True):
    """The list of an installation."""

    units: tuple[str, ...]
    files: tuple[Written, ...]


class Plan(msgspec.Struct, frozen=True):
    """What an installation would write: content by path below the root, and its mode."""

    units: tuple[str, ...]
    files: dict[str, bytes]
    modes: dict[str, int]


def plan(config: Config, settings: bytes, units: Sequence[str] = USUAL, program: Path | None = None) -> Plan:
    """What there is to write for `units`."""
    unknown = sorted(set(units) - set(UNITS))
    if unknown:
        raise InstallRefused(f"no unit {unknown[0]!r}; there are {', '.join(UNITS)}")
    evolved = program or Path(sys.prefix) / "bin" / "evolved"
    if any(str(evolved).startswith(f"{hidden}/") for hidden in _HIDDEN):
        raise InstallRefused(
            f"{evolved} cannot be seen by the services, which have no /home and a /tmp of their own; make the "
            "environment elsewhere: python3 -m venv /opt/evolved && /opt/evolved/bin/pip install evolved"
        )
    if not Path(config.state_dir).is_absolute():
        raise InstallRefused(
            f"state_dir = {config.state_dir!r} is relative, and a service starts in no directory of yours; set "
            f'state_dir = "/{STATE}"'
        )
    marks = {
        "@EVOLVED@": str(evolved),
        "@CONFIG@": f"/{SETTINGS / 'config.toml'}",
        "@TAP_LISTEN@": config.tap.listen,
    }
    names = ["evolved.target", "evolved.slice", *(f"evolved-{unit}.service" for unit in units)]
    names += ["evolved-tap.socket"] if "tap" in units else []
    files = {str(SYSTEM / name): _filled(name, marks) for name in names}
    files["etc/sysusers.d/evolved.conf"] = _filled("evolved.sysusers", marks)
    files[DIRECTORIES.lstrip("/")] = _filled("evolved.tmpfiles", marks)
    files[str(SETTINGS / "config.toml")] = settings
    if "engine" in units:
        files[str(SETTINGS / "engine.env")] = _ENGINE.encode()
    # systemd reads it as root, and vLLM's API key may stand in it.
    return Plan(tuple(units), files, {str(SETTINGS / "engine.env"): 0o600})


def _filled(name: str, marks: Mapping[str, str]) -> bytes:
    text = _templates().joinpath(name).read_text()
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text.encode()


def _templates() -> Path:
    """The units, beside the package in a wheel and in ops/ in a checkout."""
    packaged = Path(str(importlib.resources.files("daemon"))) / "systemd"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "ops" / "systemd"


def example() -> Path:
    """Settings for a machine that has none yet."""
    return _templates() / "config.toml"


def install(todo: Plan, root: Path) -> Installed:
    """Write `todo` below `root`; what is there already and ours is brought up to date."""
    before = read(root) or Installed((), ())
    ours = {one.path: one for one in before.files}
    kept: set[str] = set()
    for name, content in todo.files.items():
        path, there = root / name, ours.get(f"/{name}")
        if not path.exists():
            continue
        if there is None and path.read_bytes() != content:
            if name.startswith(str(SETTINGS)):
                kept.add(name)  # settings that were here before us are used as they are
                continue
            raise InstallRefused(f"{path} is there and is not ours; move it away, or `systemctl revert` it")
        if there is not None and (digest(path.read_bytes()) != there.sha256) and name.startswith(str(SETTINGS)):
            kept.add(name)
    files: list[Written] = []
    try:
        for directory, mode in ((SETTINGS, 0o755), (CREDENTIALS, 0o700), (ENGINE_CREDENTIALS, 0o700)):
            (root / directory).mkdir(parents=True, exist_ok=True)
            (root / directory).chmod(mode)
        for name, content in todo.files.items():
            if name in kept:
                continue
            path, mode = root / name, todo.modes.get(name, 0o644)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(mode)
            files.append(Written(f"/{name}", digest(content), mode))
        written = {one.path for one in files}
        units = tuple(dict.fromkeys((*before.units, *todo.units)))
        found = Installed(units, (*files, *(one for one in before.files if one.path not in written)))
        (root / _LIST).write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    except OSError as error:
        raise InstallRefused(f"{error.filename}: {error.strerror}; run it as root, or give --root DIR") from error
    return found


def read(root: Path) -> Installed | None:
    """What is installed below `root`; None if nothing is."""
    try:
        return msgspec.json.decode((root / _LIST).read_bytes(), type=Installed)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InstallRefused(f"{root / _LIST}: {error}; remove the files by hand") from error


def installed(root: Path) -> Installed:
    """What is installed below `root`."""
    found = read(root)
    if found is None:
        raise InstallRefused(f"nothing of evolved is installed below {root}: there is no {root / _LIST}")
    return found


def uninstall(root: Path, *, purge: bool = False) -> list[Path]:
    """Take everything away again; returns what was left because somebody had changed it."""
    found = installed(root)
    left: list[Path] = []
    try:
        for one in found.files:
            path = root / one.path.lstrip("/")
            if not path.exists():
                continue
            if not purge and digest(path.read_bytes()) != one.sha256:
                left.append(path)
                continue
            path.unlink()
        (root / _LIST).unlink()
        if purge:
            shutil.rmtree(root / SETTINGS, ignore_errors=True)
            for state in (STATE, ENGINE_STATE):
                shutil.rmtree(root / state, ignore_errors=True)
        for directory in (CREDENTIALS, ENGINE_CREDENTIALS, SETTINGS):
            if (root / directory).is_dir() and not any((root / directory).iterdir()):
                (root / directory).rmdir()
    except OSError as error:
        raise InstallRefused(f"{error.filename}: {error.strerror}; run it as root") from error
    return left


def digest(content: bytes) -> str:
    """sha256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
