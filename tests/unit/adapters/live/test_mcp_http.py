"""The MCP adapter over real HTTP: the SDK's server, and servers that redirect, flood, or go away."""

import http.server
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from actors.ports.errors import LiveApiError, LiveApiRefused, LiveApiUnavailable
from adapters.live.addresses import AddressGuard
from adapters.live.mcp import McpApi, McpSettings
from tests.support.patience import within

pytestmark = pytest.mark.anyio
SERVER = Path(__file__).parents[3] / "support" / "mcp_http_server.py"


def started(*options: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


@pytest.fixture(scope="module", params=["json", "sse"])
def address(request):
    process, url = started(request.param)
    yield url
    process.kill()
    process.wait()


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers every POST with what its path says."""

    protocol_version = "HTTP/1.1"
    seen = []

    def do_POST(self):
        self.seen.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        if self.path in ("/redirect", "/locked"):
            self.send_response(307 if self.path == "/redirect" else 401)
            self.send_header("location", "/html")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        body = b" " * 3_000_000 if self.path == "/flood" else b"<html>hello</html>"
        self.send_response(200)
        self.send_header("content-type", "application/json" if self.path == "/flood" else "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def odd():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def api(url: str, *, guard: AddressGuard | None = None, **settings: object) -> McpApi:
    return McpApi("http", McpSettings(url=url, **{"backoff": 0.01, "timeout": 20.0} | settings), guard=guard)


async def test_tools_are_listed_and_called(address):
    async with api(address) as http_api:
        assert [tool.name for tool in await http_api.tools()] == ["echo", "large", "header"]
        assert (await http_api.call("echo", {"text": "grüße"})).text == "grüße"


async def test_headers_carry_secrets_by_reference(address, monkeypatch):
    monkeypatch.setenv("CRM_TOKEN", "s3cret-token")
    async with api(address, headers={"x-api-key": "env:CRM_TOKEN"}) as http_api:
        assert (await http_api.call("header", {"name": "x-api-key"})).text == "s3cret-token"


async def test_large_answers_are_refused_before_they_are_read_whole(address):
    async with api(address, max_message=200_000) as http_api:
        assert len((await http_api.call("large", {"size": 50_000})).text) == 50_000
        with pytest.raises(LiveApiError):
            await http_api.call("large", {"size": 1_000_000})


async def test_a_server_that_went_away_and_came_back_is_spoken_to_again():
    process, url = started("json")
    try:
        async with api(url, timeout=5.0) as http_api:
            assert (await http_api.call("echo", {"text": "a"})).text == "a"
            process.kill()
            process.wait()
            with pytest.raises(LiveApiUnavailable):
                await http_api.call("echo", {"text": "b"})
            process, _ = started("json", url.split(":")[2].split("/")[0])
            with anyio.fail_after(within()):
                while True:
                    try:
                        answer = await http_api.call("echo", {"text": "c"})
                        break
                    except LiveApiUnavailable as error:
                        await anyio.sleep(error.retry_after)
            assert answer.text == "c"
    finally:
        process.kill()
        process.wait()


async def test_redirects_are_not_followed(odd):
    Odd.seen.clear()
    async with api(f"{odd}/redirect", start_timeout=5.0) as http_api:
        with pytest.raises(LiveApiError):
            await http_api.tools()
    assert set(Odd.seen) == {"/redirect"}


async def test_an_http_error_is_told_with_its_status(odd):
    async with api(f"{odd}/locked", start_timeout=5.0) as http_api:
        with pytest.raises(LiveApiUnavailable, match="HTTP 401"):
            await http_api.tools()


@pytest.mark.parametrize("path", ["flood", "html"])
async def test_what_is_no_mcp_server_is_told_so(odd, path):
    async with api(f"{odd}/{path}", max_message=1_000_000, start_timeout=5.0) as http_api:
        with pytest.raises(LiveApiError):
            await http_api.tools()


async def test_a_guard_keeps_the_adapter_from_this_machine(address):
    async with api(address, guard=AddressGuard()) as http_api:
        with pytest.raises(LiveApiRefused, match=r"live\.allow_private"):
            await http_api.tools()


async def test_the_address_that_was_checked_is_the_one_connected_to(address):
    """A name that resolves to nothing at all: if it were looked up once more, the connection would fail."""

    class Answers(AddressGuard):
        async def resolve(self, host, port, *, tls):
            assert host == "rebinding.invalid"
            return "127.0.0.1"

    async with api(address.replace("127.0.0.1", "rebinding.invalid"), guard=Answers()) as http_api:
        name, _, port = (await http_api.call("header", {"name": "host"})).text.partition(":")
        assert (name, port) == ("rebinding.invalid", address.split(":")[2].split("/")[0])
