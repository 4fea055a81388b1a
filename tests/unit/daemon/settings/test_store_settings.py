"""What is refused under [store], and that no password is shown."""

import pytest

from daemon.errors import ConfigError
from daemon.settings.config import load


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://me:s3cr3t@host/db", "postgresql+psycopg://me@host/db?password=s3cr3t"]
)
def test_a_password_in_the_url_is_sent_to_its_file(url: str) -> None:
    with pytest.raises(ConfigError, match="password_file") as caught:
        load(None, [f'store.url="{url}"'])
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "", "sqlite:////var/lib/evolved/evolved.db", "postgresql+psycopg://me@host:5432/db",
        "postgresql+psycopg://me@[::1]:5432/db?sslmode=verify-full", "postgresql+psycopg://me@/db?host=/run/postgresql",
    ],
)  # fmt: skip
def test_urls_without_one_are_taken(url: str) -> None:
    assert load(None, [f'store.url="{url}"']).store.url == url


@pytest.mark.parametrize("line", ["store.connections=1", "store.statement_seconds=-1"])
def test_figures_that_cannot_work_are_named(line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        load(None, [line])
