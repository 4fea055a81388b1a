"""Who listens on our ports: we, nobody, or somebody else."""

from collections.abc import Sequence

import anyio
import httpx
import msgspec

from daemon.cli.control_client import address, control_client
from daemon.doctor.base import CALL_SECONDS, Check, Finding, Scene, aside, fault, warning
from daemon.errors import ConfigError
from daemon.settings.control import ControlSettings, where
from daemon.settings.reading import address as address_of
from daemon.tap.place import told


async def listens(host: str, port: int) -> bool:
    """Whether somebody takes a connection there."""
    where = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound
    try:
        with anyio.fail_after(CALL_SECONDS):
            async with await anyio.connect_tcp(where, port):
                return True
    except TimeoutError:
        return True  # its queue is full, or the machine is busy: somebody is there
    except OSError:
        return False


async def daemon_answers(scene: Scene) -> bool:
    """Whether our daemon answers at the control address, with or without a key.

    Raises:
        ForeignServer: somebody else does.
        NoAnswer: somebody takes connections there and says nothing.
    """
    control = where(scene.config.control)
    if not await listens(control.host, control.port):
        return False
    try:
        answer = await aside(_status, control)
        waits = answer.status_code == 503 and "waits to lead" in answer.text
        ours = waits or (
            "evolved keys add" in answer.text if answer.status_code in (401, 403) else "actors" in answer.json()
        )
    except (httpx.TimeoutException, httpx.NetworkError) as error:
        raise NoAnswer(f"{address(control)}/api/status") from error
    except (httpx.HTTPError, ConfigError, ValueError, TypeError):
        ours = False
    if not ours:
        raise ForeignServer(f"{address(control)}/api/status")
    return True


def _status(control: ControlSettings) -> httpx.Response:
    try:
        client = control_client(control, CALL_SECONDS)
    except ConfigError:  # another check names a key file that cannot be used
        client = control_client(msgspec.structs.replace(control, admin_key_file=""), CALL_SECONDS)
    with client:
        return client.get("/api/status")


class ForeignServer(Exception):
    """Somebody else answers where we should; the text is the address."""


class NoAnswer(Exception):
    """Somebody takes connections where we should and says nothing in time: we, busy or stuck, or somebody else. The
    text is the address."""


async def tap_answers(scene: Scene) -> bool:
    """Whether a tap of ours answers at its admin address.

    Raises:
        ForeignServer: somebody else does.
        NoAnswer: somebody takes connections there and says nothing.
    """
    for admin in dict.fromkeys((*(one.admin for one in told(scene.config.spool)), scene.config.tap.admin)):
        if await _tap_answers(scene, admin):
            return True
    return False


async def _tap_answers(scene: Scene, admin: str) -> bool:
    if not await listens(*address_of(admin, "tap.admin")):
        return False
    url = f"http://{admin}/healthz"
    try:
        async with scene.http() as http:
            answer = await http.get(url)
            ours = answer.json().get("status") in ("ok", "degraded")
    except (httpx.TimeoutException, httpx.NetworkError) as error:
        raise NoAnswer(url) from error
    except (httpx.HTTPError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise ForeignServer(url)
    return True


async def _ports(scene: Scene) -> Sequence[Finding]:
    config, found = scene.config, list[Finding]()
    running = {"tap": False, "run": False}
    for command, answers, key in (("tap", tap_answers, "tap.admin"), ("run", daemon_answers, "control.listen")):
        try:
            running[command] = await answers(scene)
        except ForeignServer as error:
            found.append(_taken(str(error), key))
            running[command] = True  # what runs there is told already
        except NoAnswer as error:
            found.append(_silent(str(error)))
            running[command] = True
        if not running[command]:
            unit = "evolved-tap@0" if command == "tap" else "evolved-daemon"
            found.append(
                warning(f"`evolved {command}` does not run", f"start it: systemctl start {unit}, or evolved {command}")
            )
    for tap in told(config.spool):
        # One that has ended takes its file with it.
        if running["tap"] and not await listens(*address_of(tap.admin, "tap.admin")):
            found.append(
                warning(
                    f"tap {tap.number} ended without a word, and nobody answers at {tap.admin}",
                    f"its log says why: journalctl -u evolved-tap@{tap.number}; start it again",
                )
            )
    others = [("tap", config.tap.listen, "tap.listen")]
    if config.otlp.listen:
        others.append(("run", config.otlp.listen, "otlp.listen"))
    for command, listen, key in others:
        there = await listens(*address_of(listen, key))
        # A socket unit listens for a tap that does not run: agents wait there, and that is as it should be.
        held = key == "tap.listen" and (scene.root / "etc/systemd/system/evolved-tap.socket").exists()
        if there and not running[command] and not held:
            found.append(_taken(listen, key))
        if not there and running[command]:
            found.append(fault(f"`evolved {command}` runs, and nobody listens on {listen}", f"check {key}"))
    return found


def _taken(where: str, key: str) -> Finding:
    return fault(
        f"somebody else listens at {where}",
        f"`ss -ltnp` shows who it is; if it is not meant to be there, stop it, or set {key} to another port",
    )


def _silent(where: str) -> Finding:
    return warning(
        f"{where} takes connections and did not answer within {CALL_SECONDS:g} s: busy, or stuck",
        "look again in a minute; `ss -ltnp` shows whose it is, and its log what it does. Do not end it for this alone",
    )


NETWORK = (Check("ports", "our ports: tap, tap admin, control API, OTLP; who listens there", _ports),)
