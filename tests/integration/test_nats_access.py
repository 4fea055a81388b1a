"""Getting into a NATS of one's own: what stands in the way is named, with the setting and the remedy, and at once."""

import asyncio
from pathlib import Path

import anyio.to_thread
import pytest

from actors.system import runtime
from actors.system.access import Access
from actors.system.bus import Bus
from actors.system.errors import BusMisconfigured, BusUnavailable
from actors.system.outgoing import Outgoing
from actors.system.streams import TRAFFIC_EXCHANGE
from daemon.errors import StartFailed
from daemon.processes.bus_connection import open_bus
from daemon.settings.reading import load
from tests.support.certificates import Authority
from tests.support.nats import persistently, same_loop
from tests.support.nats_cluster import PASSWORD, Operator, server, tls, user
from tests.support.patience import within
from tests.support.ports import free_ports

QUICK = {"answer_seconds": 0.5}
"""For servers that do not answer whoever has no right to ask."""


def opened(tmp_path: Path, settings: Access) -> list[str]:
    """A bus under `settings`: one record goes there and back; the ids that came. A deadline may strike a slow server:
    it is asked again."""

    async def main(host: runtime.Host) -> list[str]:
        bus = Bus(host, settings, claims=tmp_path / "claims", **QUICK)
        try:
            await persistently(bus.open)
            await persistently(bus.publish, [Outgoing(TRAFFIC_EXCHANGE, "r1", b"x")])
            subscription = await persistently(bus.subscribe, "d", [TRAFFIC_EXCHANGE])
            found = await subscription.fetch(1, within())
            await subscription.ack(found)
            return [one.id for one in found if one.subject == TRAFFIC_EXCHANGE]
        finally:
            await bus.aclose()

    return runtime.run(main)


def refused(tmp_path: Path, settings: Access) -> str:
    with pytest.raises(BusMisconfigured) as caught:
        opened(tmp_path, settings)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return str(tmp_path / "password")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def test_a_password_from_a_file_opens_it_and_a_wrong_one_names_the_file(tmp_path: Path, secret: str) -> None:
    with server(tmp_path / "s", user()) as one:
        good = Access(servers=(one.url,), user="evolved", secret_file=secret)
        assert opened(tmp_path, good) == ["r1"]
        Path(secret).write_text("wrong")
        assert "nats.secret_file = " + secret in refused(tmp_path, good)
        assert "nats://USER@HOST" in refused(tmp_path, Access(servers=(one.url,)))
        (port,) = free_ports(1)
        assert "nats://USER@HOST" in refused(tmp_path, Access(servers=(one.url, f"nats://127.0.0.1:{port}")))


def test_a_credentials_file_opens_it_and_one_that_has_expired_is_named(tmp_path: Path) -> None:
    operator = Operator()
    with server(tmp_path / "s", operator.block) as one:
        good = operator.credentials(tmp_path / "good.creds")
        assert opened(tmp_path, Access(servers=(one.url,), secret_file=str(good))) == ["r1"]
        late = operator.credentials(tmp_path / "late.creds", hours=-1.0)
        assert f"nats.secret_file = {late}" in refused(tmp_path, Access(servers=(one.url,), secret_file=str(late)))


def test_a_server_with_tls_opens_and_one_that_wants_our_certificate_says_what_to_do(
    tmp_path: Path, authority: Authority, secret: str
) -> None:
    for clients in (None, authority.chain):
        text = f"{tls(authority.certificate('server', '127.0.0.1'), clients=clients)}\n{user()}"
        with server(tmp_path / f"clients-{clients is not None}", text) as one:
            settings = Access(
                servers=(one.url.replace("nats:", "tls:"),),
                user="evolved",
                secret_file=secret,
                ca_file=str(authority.chain),
            )
            if clients is None:
                assert opened(tmp_path, settings) == ["r1"]
            else:
                assert "let it take a user or a .creds file" in refused(tmp_path, settings)


def test_a_server_without_tls_hears_no_password_where_tls_is_wanted(tmp_path: Path, secret: str) -> None:
    heard: list[bytes] = []

    async def main() -> str:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"server_name":"plain","max_payload":1048576,"auth_required":true}\r\n')
            heard.append(await reader.read(4096))
            writer.close()

        listener = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        settings = Access(servers=(f"tls://127.0.0.1:{port}",), user="evolved", secret_file=secret)
        bus = Bus(same_loop, settings, claims=tmp_path)
        with pytest.raises(BusMisconfigured) as caught:
            await bus.open()
        await bus.aclose()
        listener.close()
        return str(caught.value)

    text = asyncio.run(main())
    assert "offers no TLS" in text
    assert "write nats://" in text
    assert not any(PASSWORD.encode() in data for data in heard)


def account(jetstream: str, rights: str = "") -> str:
    who = f'{{ user: evolved, password: "{PASSWORD}"{rights} }}'
    return f"accounts {{ A {{ {jetstream}\n users: [{who}] }} }}"


LIMITED = account("jetstream: enabled", ', permissions: { publish: ["traffic.>"] }')


@pytest.mark.parametrize(
    ("text", "options", "settings", "said"),
    [
        ("", {"jetstream": False}, {}, "JetStream is off"),
        ("", {}, {"replicas": 3}, "replicas > 1"),
        ("", {"limits": "max_file_store: 1MB"}, {}, "max_file_store"),
        (account("jetstream: { max_streams: 2 }"), {}, {"user": "evolved"}, "maximum number of streams"),
        (account(""), {}, {"user": "evolved"}, "JetStream is off"),
        (LIMITED, {}, {"user": "evolved"}, "$JS.API.>"),
    ],
    ids=["off", "copies", "small", "streams", "account", "rights"],
)
def test_what_a_server_an_account_or_a_user_lacks_is_named(
    tmp_path: Path, secret: str, text: str, options: dict, settings: dict, said: str
) -> None:
    if "user" in settings:
        settings = {**settings, "secret_file": secret}
    with server(tmp_path / "s", text, **options) as one:
        assert said in refused(tmp_path, Access(servers=(one.url,), **settings))


@pytest.mark.parametrize(
    ("name", "host", "until", "known", "said"),
    [
        ("expired", "127.0.0.1", -1, True, "has expired"),
        ("unknown", "127.0.0.1", 7, False, "nats.ca_file"),
        ("elsewhere", "nats.example", 7, True, "nats.url"),
    ],
)
def test_a_servers_certificate_that_does_not_hold_is_told_by_its_fault(
    tmp_path: Path, authority: Authority, name: str, host: str, until: float, known: bool, said: str
) -> None:
    ca = (authority if known else Authority(tmp_path, "other")).chain
    with server(tmp_path / name, tls(authority.certificate(name, host, days=(-9, until)))) as one:
        assert said in refused(tmp_path, Access(servers=(one.url.replace("nats:", "tls:"),), ca_file=str(ca)))


def test_a_daemon_that_waiting_does_not_help_says_so_at_once_and_one_without_servers_waits(tmp_path: Path) -> None:
    async def start(url: str, seconds: float) -> str:
        config = load(None, [f"state_dir={tmp_path}", f"nats.url={url}"])
        with pytest.raises(StartFailed) as caught:
            await open_bus(config, same_loop, "test", seconds)
        return str(caught.value)

    with server(tmp_path / "s", user()) as one:
        # Were it to wait for what no waiting cures, the test would hang.
        assert "nats.secret_file" in asyncio.run(start(one.url, 36_000.0))
    (port,) = free_ports(1)
    assert "start it, or correct nats.url" in asyncio.run(start(f"nats://127.0.0.1:{port}", 0.0))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no certificate\n")
    for name in ("secret_file", "ca_file"):
        for file, said in ((tmp_path / "nowhere", " cannot be read"), (broken, "")):
            settings = Access(servers=("tls://127.0.0.1:4222",), **{name: str(file)})
            assert f"nats.{name} = {file}{said}" in refused(tmp_path, settings)


def test_a_password_that_changes_while_the_server_is_away_is_read_again(tmp_path: Path, secret: str) -> None:
    async def main(host: runtime.Host) -> None:
        with server(tmp_path / "s", user()) as one:
            settings = Access(servers=(one.url,), user="evolved", secret_file=secret)
            bus = Bus(host, settings, claims=tmp_path, **QUICK)
            await persistently(bus.open)
            one.stop()
            file = tmp_path / "s" / "nats.conf"
            file.write_text(file.read_text().replace(PASSWORD, "another one"))
            one.start()
            await anyio.to_thread.run_sync(one.until_up)
            with pytest.raises(BusUnavailable, match=r"password_file|confirm|No|JetStream"):
                await bus.publish([Outgoing(TRAFFIC_EXCHANGE, "r1", b"x")])
            Path(secret).write_text("another one")
            await persistently(bus.publish, [Outgoing(TRAFFIC_EXCHANGE, "r1", b"x")])
            await bus.aclose()

    runtime.run(main)
