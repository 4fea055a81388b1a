"""Which addresses a live API may be reached at."""

import ipaddress

import pytest

from actors.ports.errors import LiveApiRefused, LiveApiUnavailable
from adapters.live.addresses import AddressGuard, is_public

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
OURS = """
    127.0.0.1 127.8.9.1 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 100.100.100.200 169.254.169.254 168.63.129.16
    224.0.0.1 239.1.1.1 255.255.255.255 240.0.0.1 198.18.0.1 ::1 :: fe80::1 fc00::1 fd00:ec2::254 ff02::1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 2002:7f00:1:: 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe
"""
HERE = "127.0.0.1 localhost 2130706433 0x7f.1 127.1 [::1] [::ffff:127.0.0.1] LOCALHOST."
PUBLIC = "1.1.1.1 93.184.216.34 2606:4700:4700::1111 ::ffff:1.1.1.1"


def test_addresses_of_our_own_network_are_not_public_and_those_of_the_internet_are():
    assert [one for one in OURS.split() if is_public(ipaddress.ip_address(one))] == []
    assert [one for one in PUBLIC.split() if not is_public(ipaddress.ip_address(one))] == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        *((f"https://{host}/mcp", r"apis\.allow_hosts") for host in HERE.split()),
        ("http://1.1.1.1/mcp", r"apis\.allow_hosts"),
        *((url, "") for url in ("file:///etc/passwd", "ftp://1.1.1.1/", "gopher://1.1.1.1/", "https://", "nonsense")),
        ("https://me:hunter2@1.1.1.1/", "^(?!.*hunter2)"),
    ],
)  # fmt: skip
async def test_what_must_not_be_reached_is_refused_however_it_is_written(url, told):
    with pytest.raises(LiveApiRefused, match=told or None):
        await AddressGuard().check(url)


async def test_what_the_operator_lists_may_be_reached_by_name_address_or_network():
    assert await AddressGuard().check("https://1.1.1.1/mcp") == "1.1.1.1"
    assert await AddressGuard(allow_private=("1.1.1.1",)).check("http://1.1.1.1/mcp") == "1.1.1.1"
    for entry in ("localhost", "127.0.0.1", "127.0.0.0/8"):
        guard = AddressGuard(allow_private=(entry, "::1"))
        assert await guard.check("http://localhost:8080/") in ("127.0.0.1", "::1")
    with pytest.raises(LiveApiRefused):
        await AddressGuard(allow_private=("10.0.0.0/8",)).check("http://localhost:8080/")
    with pytest.raises(ValueError, match="no network"):
        AddressGuard(allow_private=("10.0.0.0/99",))


async def test_a_name_that_does_not_resolve_is_unavailable():
    with pytest.raises(LiveApiUnavailable, match="cannot be resolved"):
        await AddressGuard().check("https://no-such-host.invalid/")
