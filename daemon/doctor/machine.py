"""The machine around us: its services and its clock."""

import email.utils
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from daemon.doctor.base import Check, Finding, NotLooked, Scene, aside, fault, warning
from daemon.settings.config import serving_engines
from daemon.upkeep.install import SYSTEM

_SKEW_SECONDS = 5.0
_BAD_SECONDS = 60.0
_SYSTEMD = Path("/run/systemd/system")


async def _services(scene: Scene) -> Sequence[Finding]:
    units = sorted(path.name for path in (scene.root / SYSTEM).glob("evolved-*.service"))
    if not units:
        raise NotLooked("no units are installed")
    live = scene.root == Path("/") and _SYSTEMD.is_dir()
    found: list[Finding] = []
    for unit in units:
        # Without an init too: what is enabled is a link on the disk.
        enabled = await aside(_systemctl, "is-enabled", unit, scene.root)
        if enabled == "disabled":
            found.append(warning(f"{unit} is installed and not enabled: it does not start at boot", _enable(unit)))
        if enabled == "masked":
            found.append(fault(f"{unit} is masked", f"systemctl unmask {unit}"))
        if live and await aside(_systemctl, "is-failed", unit, scene.root) == "failed":
            found.append(fault(f"{unit} has failed", f"journalctl -u {unit} -n 50; then systemctl restart {unit}"))
    return found


def _enable(unit: str) -> str:
    return f"systemctl enable --now evolved.target {unit}"


def _systemctl(verb: str, unit: str, root: Path) -> str:
    """What systemctl answers.

    Raises:
        NotLooked: there is no systemctl.
    """
    where = [] if root == Path("/") else [f"--root={root}"]
    try:
        done = subprocess.run(
            ["systemctl", *where, verb, unit], capture_output=True, text=True, check=False, timeout=3.0
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotLooked("there is no systemctl here") from error
    return done.stdout.strip()


async def _clock(scene: Scene) -> Sequence[Finding]:
    """Engines tell the time with every answer (RFC 9110, Date)."""
    others = {f"the engine {name}": f"{url.rstrip('/')}/health" for name, url in serving_engines(scene.config).items()}
    found: list[Finding] = []
    heard = 0
    for who, url in others.items():
        skew = await _skew(scene, url)
        if skew is not None and abs(skew) > _SKEW_SECONDS:
            # A busy server sends a Date that it made a while ago: the nearer of two answers counts.
            again = await _skew(scene, url)
            skew = skew if again is None else min(skew, again, key=abs)
        if skew is None:
            continue
        heard += 1
        if abs(skew) > _SKEW_SECONDS:
            say = fault if abs(skew) > _BAD_SECONDS else warning
            found.append(
                say(
                    f"the clock of {who} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's",
                    "see that both are kept by NTP: timedatectl; the times of swaps and the ends of keys rest on it",
                )
            )
    if not heard:
        raise NotLooked("nobody told us the time")
    return found


async def _skew(scene: Scene, url: str) -> float | None:
    """Seconds that the other clock is ahead; None if it does not tell."""
    try:
        async with scene.http() as http:
            before = time.time()
            answer = await http.get(url)
            after = time.time()
        theirs = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx.HTTPError, KeyError, ValueError):
        return None
    # The header has whole seconds: anything between there and the next one is no skew.
    if theirs > after:
        return theirs - after
    return min(0.0, theirs + 1.0 - before)


MACHINE = (
    Check("services", "systemd's units are enabled and none has failed", _services),
    Check("clock", "this machine's clock against the engines' and the broker's", _clock),
)
