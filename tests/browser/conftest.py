"""A server process, and pages that tell whether they stayed quiet and at home."""

import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.browser.chromium import chromium

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
PATIENCE = 90.0
"""Seconds for a server or a page: the machine may have other things to do."""


class Served:
    """A control API in a process of its own."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = directory / "server.log"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [PYTHON, "-m", "tests.browser.server", str(port), str(directory), kind],
                cwd=ROOT, stdout=out, stderr=out,
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < end, self._log.read_text()[-2000:]
            time.sleep(0.1)

    @property
    def key(self) -> str:
        return (self.directory / "admin.key").read_text()

    def stop(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.terminate()
        self._process.wait(30)
        assert "Traceback" not in self._log.read_text()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/status", timeout=10):
                return True
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False


def _serving(kind: str) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        served = Served(Path(directory), kind)
        yield served
        served.stop()


@pytest.fixture(scope="session")
def full() -> Iterator[Served]:
    """One with records, which tests read only."""
    yield from _serving("full")


@pytest.fixture
def ordered() -> Iterator[Served]:
    """One with records, for a test that changes something."""
    yield from _serving("full")


@pytest.fixture
def empty() -> Iterator[Served]:
    """One without records that takes an admin key."""
    yield from _serving("empty")


expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


class Window:
    """A browser window, and what went wrong in it."""

    def __init__(self, context: BrowserContext) -> None:
        self.context, self.errors, self.hosts = context, list[str](), set[str]()
        context.set_default_timeout(1000 * PATIENCE)
        self.page: Page = context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        context.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, served: Served, path: str = "") -> Page:
        """The page at `path`, once it shows something."""
        self.page.goto("about:blank")  # else it were the same document, and its old heading were there already
        self.page.goto(f"{served.url}/#/{path}")
        self.page.locator("main h1").wait_for()
        return self.page


@pytest.fixture
def window(browser: Browser) -> Iterator[Window]:
    """A window that must not complain, nor ask anybody but the server that it was opened at."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    window = Window(context)
    yield window
    context.close()
    assert window.errors == []
    hosts = window.hosts - {""}  # about:blank
    assert len(hosts) <= 1
    assert {host.rpartition(":")[0] for host in hosts} <= {"127.0.0.1"}
