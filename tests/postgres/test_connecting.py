"""What may stand in store.url, on a server that speaks TLS and beside one that is gone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from actors.store import Store, StoreUnavailable
from tests.support.certificates import Certificate, self_signed
from tests.support.postgres import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return self_signed(tmp_path)


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
    address: str, certificate: Certificate, new_store: Callable[..., Store], tmp_path: Path
):
    (tmp_path / "password").write_text("p")
    verified, password = f"{address}?sslmode=verify-full&sslrootcert=", {"password_file": str(tmp_path / "password")}
    store = new_store(f"{verified}{certificate.chain}", **password)
    await store.open()
    used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    assert await store.ask(lambda connection: connection.exec_driver_sql(used).scalar()) is True
    (tmp_path / "other").mkdir()
    stranger = self_signed(tmp_path / "other").chain
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        await new_store(f"{verified}{stranger}", **password).open()


async def test_of_several_hosts_the_one_that_takes_writes_is_used(own_server: Cluster, new_store):
    name = own_server.create()
    hosts = f"host=127.0.0.1:1&host={own_server.directory}:{own_server.port}"
    store = new_store(f"postgresql+psycopg://evolved@/{name}?{hosts}&target_session_attrs=read-write")
    await store.open()
    await store.state_put("k", b"v")
    assert await store.state_get("k") == b"v"
    own_server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        await new_store(own_server.url(name)).state_put("k", b"w")
