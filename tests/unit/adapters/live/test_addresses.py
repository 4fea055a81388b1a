import ipaddress

import pytest

from actors.ports.errors import LiveApiRefused, LiveApiUnavailable
from adapters.live.addresses import AddressGuard, is_public

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200",
        "169.254.169.254", "168.63.129.16", "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1", "198.18.0.1",
        "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    ],
)  # fmt: skip
def test_addresses_of_our_own_network_are_not_public(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_addresses_of_the_internet_are_public(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "LOCALHOST."]
)
async def test_however_it_is_written_this_machine_is_refused(host):
    with pytest.raises(LiveApiRefused, match=r"live\.allow_private"):
        await AddressGuard().check(f"https://{host}/mcp")


async def test_a_public_address_needs_tls_unless_its_host_is_listed():
    assert await AddressGuard().check("https://1.1.1.1/mcp") == "1.1.1.1"
    with pytest.raises(LiveApiRefused, match=r"live\.allow_http"):
        await AddressGuard().check("http://1.1.1.1/mcp")
    assert await AddressGuard(allow_http=("1.1.1.1",)).check("http://1.1.1.1/mcp") == "1.1.1.1"


async def test_what_the_operator_lists_may_be_reached_by_name_address_or_network():
    for entry in ("localhost", "127.0.0.1", "127.0.0.0/8"):
        guard = AddressGuard(allow_private=(entry, "::1"))
        assert await guard.check("http://localhost:8080/") in ("127.0.0.1", "::1")
    with pytest.raises(LiveApiRefused):
        await AddressGuard(allow_private=("10.0.0.0/8",)).check("http://localhost:8080/")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://1.1.1.1/", "gopher://1.1.1.1/", "https://", "nonsense"])
async def test_other_schemes_are_refused(url):
    with pytest.raises(LiveApiRefused):
        await AddressGuard().check(url)


async def test_a_url_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(LiveApiRefused) as refused:
        await AddressGuard().check("https://me:hunter2@1.1.1.1/")
    assert "hunter2" not in str(refused.value)


async def test_a_name_that_does_not_resolve_is_unavailable():
    with pytest.raises(LiveApiUnavailable, match="cannot be resolved"):
        await AddressGuard().check("https://no-such-host.invalid/")


def test_a_network_that_is_none_says_so():
    with pytest.raises(ValueError, match="no network"):
        AddressGuard(allow_private=("10.0.0.0/99",))
