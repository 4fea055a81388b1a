"""`evolved install --system`: writes what systemd needs to run evolved on this machine.

    ops/systemd/*  ->  /etc/systemd/system, /etc/sysusers.d, /etc/tmpfiles.d, /etc/evolved

Units are ours and are brought up to date: an administrator changes them by drop-ins (`systemctl edit`). Settings that
are there stay as they are.
"""

import importlib.resources
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from daemon.errors import CommandFailed
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
DIRECTORIES = "/etc/tmpfiles.d/evolved.conf"
"""What systemd-tmpfiles makes of them."""
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - named, not written to
"""What ProtectHome= and PrivateTmp= hide from the services."""
_ENGINE = "engine.env"
"""systemd reads it as root, and vLLM's API key may stand in it."""
_ENGINE_ARGUMENTS = "EVOLVED_ENGINE_ARGUMENTS=--vllm /srv/models/YOUR-MODEL --port 8000\n"


def plan(
    config: Config, settings: bytes, units: Sequence[str] = USUAL, program: Path | None = None
) -> dict[str, bytes]:  # fmt: skip
    """What there is to write for `units`, by path below the root."""
    unknown = sorted(set(units) - set(UNITS))
    if unknown:
        raise CommandFailed(f"no unit {unknown[0]!r}; there are {', '.join(UNITS)}")
    evolved = program or Path(sys.prefix) / "bin" / "evolved"
    if any(str(evolved).startswith(f"{hidden}/") for hidden in _HIDDEN):
        raise CommandFailed(
            f"{evolved} cannot be seen by the services, which have no /home and a /tmp of their own; make the "
            "environment elsewhere: python3 -m venv /opt/evolved && /opt/evolved/bin/pip install evolved"
        )
    if not Path(config.state_dir).is_absolute():
        raise CommandFailed(
            f"state_dir = {config.state_dir!r} is relative, and a service starts in no directory of yours; set "
            f'state_dir = "/{STATE}"'
        )
    marks = {
        "@EVOLVED@": str(evolved), "@CONFIG@": f"/{SETTINGS / 'config.toml'}", "@TAP_LISTEN@": config.tap.listen,
    }  # fmt: skip
    names = ["evolved.target", "evolved.slice", *(service(unit) for unit in units)]
    names += ["evolved-tap.socket"] if "tap" in units else []
    files = {str(SYSTEM / name): _filled(name, marks) for name in names}
    files["etc/sysusers.d/evolved.conf"] = _filled("evolved.sysusers", marks)
    files[DIRECTORIES.lstrip("/")] = _filled("evolved.tmpfiles", marks)
    files[str(SETTINGS / "config.toml")] = settings
    if "engine" in units:
        files[str(SETTINGS / _ENGINE)] = _ENGINE_ARGUMENTS.encode()
    return files


def service(unit: str, number: str = "") -> str:
    """The name of its file; with a `number` that of a service, which is one of several where the unit is a tap."""
    return f"evolved-{unit}@{number}.service" if unit == "tap" else f"evolved-{unit}.service"


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


def install(todo: Mapping[str, bytes], root: Path) -> list[str]:
    """Write `todo` below `root`, but for settings that are there already; returns what was written."""
    written: list[str] = []
    try:
        for directory, mode in ((SETTINGS, 0o755), (CREDENTIALS, 0o700), (ENGINE_CREDENTIALS, 0o700)):
            (root / directory).mkdir(parents=True, exist_ok=True)
            (root / directory).chmod(mode)
        for name, content in todo.items():
            path = root / name
            if path.exists() and name.startswith(str(SETTINGS)):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o600 if path.name == _ENGINE else 0o644)
            written.append(f"/{name}")
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}; run it as root, or give --root DIR") from error
    return written
