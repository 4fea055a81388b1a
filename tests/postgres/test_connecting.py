"""What may stand in store.url, on a server that speaks TLS and beside one that is gone."""

import time
from pathlib import Path

import pytest

from actors.store import Store, StoreUnavailable
from actors.store.settings import StoreSettings
from tests.support.certificates import Certificate, self_signed
from tests.support.postgres import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return self_signed(tmp_path)


@pytest.fixture
def settings(tmp_path: Path) -> StoreSettings:
    (tmp_path / "password").write_text("p")
    return StoreSettings(password_file=str(tmp_path / "password"))


@pytest.fixture
def address(own_server: Cluster, certificate: Certificate) -> str:
    """Of a database over TLS, for a user with a password."""
    own_server.stop()
    own_server.use_tls(certificate)
    own_server.start()
    name = own_server.create(empty=True)
    own_server.run("CREATE ROLE ordinary LOGIN PASSWORD 'p'")
    own_server.run(f"ALTER DATABASE {name} OWNER TO ordinary")
    return own_server.tcp_url(name, user="ordinary")


async def test_the_server_is_known_by_its_certificate_or_not_talked_to(
    address: str, certificate: Certificate, settings: StoreSettings, tmp_path: Path
):
    store = Store(f"{address}?sslmode=verify-full&sslrootcert={certificate.chain}", clock=time.time, settings=settings)
    await store.open()
    used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    assert await store._read(lambda connection: connection.exec_driver_sql(used).scalar()) is True
    await store.aclose()
    (tmp_path / "other").mkdir()
    stranger = self_signed(tmp_path / "other").chain
    store = Store(f"{address}?sslmode=verify-full&sslrootcert={stranger}", clock=time.time, settings=settings)
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        await store.open()
    await store.aclose()


async def test_of_several_hosts_the_one_that_takes_writes_is_used(own_server: Cluster):
    name = own_server.create()
    hosts = f"host=127.0.0.1:1&host={own_server.directory}:{own_server.port}"
    store = Store(f"postgresql+psycopg://evolved@/{name}?{hosts}&target_session_attrs=read-write", clock=time.time)
    await store.open()
    await store.state_put("k", b"v")
    assert await store.state_get("k") == b"v"
    await store.aclose()
    own_server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store = Store(own_server.url(name), clock=time.time)
    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        await store.state_put("k", b"w")
    await store.aclose()
