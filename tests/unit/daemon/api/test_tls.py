"""TLS of the control API: real handshakes with certificates that are good, and with each kind that is not."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daemon.api.headers import SecurityHeaders
from daemon.api.tls import ServerTls, server_tls
from daemon.cli.control_client import address, control_client
from daemon.cli.status import fetch
from daemon.doctor.network import listens
from daemon.errors import ConfigError, ControlUnreachable
from daemon.processes.asgi import serve
from daemon.settings.control import ControlSettings
from tests.support.certificates import Authority, Certificate
from tests.support.patience import until
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio


async def status(request: Request) -> Response:
    return JSONResponse({"fine": True})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(made: Certificate) -> ServerTls:
    found = server_tls(str(made.chain), str(made.key), section="control")
    assert found is not None
    return found


@asynccontextmanager
async def served(tls: ServerTls | None, authority: Authority | None) -> AsyncIterator[ControlSettings]:
    """A server, and the settings of the commands that ask it."""
    port = free_port()
    settings = ControlSettings(
        port=port, url=f"https://127.0.0.1:{port}" if tls else "", ca_file=str(authority.chain) if authority else ""
    )
    app, stop = SecurityHeaders(Starlette(routes=[Route("/api/status", status)])), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serve(app, settings.host, settings.port, tls=tls, stop=stop))
        await until(lambda: listens(settings.host, settings.port), "it listens")
        try:
            yield settings
        finally:
            stop.set()


async def asked(settings: ControlSettings) -> dict[str, object]:
    return await anyio.to_thread.run_sync(fetch, settings)


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_the_commands_speak_tls_with_a_daemon_whose_authority_they_know(authority: Authority) -> None:
    async with served(tls_of(authority.certificate("good", "127.0.0.1")), authority) as settings:
        assert await asked(settings) == {"fine": True}
        with pytest.raises(ControlUnreachable, match=r"CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
            await asked(msgspec.structs.replace(settings, ca_file="", url=address(settings)))
        with pytest.raises(ControlUnreachable, match="no daemon at http://"):
            await asked(ControlSettings(port=settings.port))
    # One for another host is not believed unless it is asked by its name.
    async with served(tls_of(authority.certificate("other", "localhost")), authority) as settings:
        with pytest.raises(ControlUnreachable, match=r"IP address mismatch.*EVOLVED_URL"):
            await asked(settings)
        url = f"https://localhost:{settings.port}"
        assert await asked(msgspec.structs.replace(settings, url=url)) == {"fine": True}


async def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    async with served(tls_of(authority.certificate("good", "127.0.0.1")), authority) as settings:
        for version, spoken in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
            context = ssl.create_default_context(cafile=str(authority.chain))
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = version
            async with httpx.AsyncClient(verify=context) as http:
                with nullcontext() if spoken else pytest.raises(httpx.ConnectError):
                    assert (await http.get(f"{address(settings)}/api/status")).status_code == 200


async def test_only_over_tls_browsers_are_told_to_stay_with_it(authority: Authority) -> None:
    for tls in (tls_of(authority.certificate("good", "127.0.0.1")), None):
        async with served(tls, authority if tls else None) as settings:
            answer = await anyio.to_thread.run_sync(lambda: control_client(settings, 20.0).get("/api/status"))
            assert ("strict-transport-security" in answer.headers) == (tls is not None)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert "set-cookie" not in answer.headers


def test_what_cannot_be_used_is_named_with_setting_file_and_remedy(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.certificate("good"), authority.certificate("other")
    old, young = authority.certificate("old", days=(-9, -1)), authority.certificate("young", days=(1, 9))
    hidden = authority.certificate("hidden", password=b"planted-passphrase")
    readable = authority.certificate("readable")
    readable.key.chmod(0o644)
    missing, junk = tmp_path / "missing.pem", tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    junk.chmod(0o600)
    for cert, key, says in (
        (missing, good.key, rf"control\.tls_cert {missing}: No such file"),
        (good.chain, missing, rf"control\.tls_key {missing}: No such file"),
        (tmp_path, good.key, r"control\.tls_cert .*: Is a directory"),
        (junk, good.key, rf"control\.tls_cert {junk}: no certificate in PEM"),
        (good.chain, junk, rf"control\.tls_key {junk}: no private key in PEM"),
        (good.chain, other.key, rf"control\.tls_key {other.key}: is not the key of control\.tls_cert {good.chain}"),
        (old.chain, old.key, rf"control\.tls_cert {old.chain}: expired at 20.*renew it"),
        (young.chain, young.key, rf"control\.tls_cert {young.chain}: not valid before 20.*clock"),
        (hidden.chain, hidden.key, rf"control\.tls_key {hidden.key}: it has a passphrase"),
        (readable.chain, readable.key, rf"control\.tls_key .*: others may read.*chmod 600 {readable.key}"),
        ("", good.key, r"control\.tls_cert and control\.tls_key belong together"),
    ):
        with pytest.raises(ConfigError, match=says):
            server_tls(str(cert), str(key), section="control")
    assert server_tls("", "", section="control") is None
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE .*missing"):
        control_client(ControlSettings(url="https://127.0.0.1:9", ca_file=str(missing)), 1.0)
