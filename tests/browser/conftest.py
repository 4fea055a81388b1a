"""A server process, and pages that tell whether they stayed quiet and at home."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.support.patience import within
from tests.support.ports import free_port
from tests.support.process import Process, status

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
PATIENCE = within(90)
"""Seconds for a page."""


class Served:
    """A control API in a process of its own."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory = directory
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = Process(
            [PYTHON, "-m", "tests.browser.server", str(port), str(directory), kind], directory / "server.log", cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._process.until(lambda: status(f"{self.url}/api/status") in (200, 401), 90)

    @property
    def key(self) -> str:
        return (self.directory / "admin.key").read_text()

    def stop(self) -> None:
        self._process.stop()
        assert "Traceback" not in self._process.log.read_text()


def _serving(kind: str) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        served = Served(Path(directory), kind)
        try:
            yield served
        finally:
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
    """Debian's Chromium, without a window."""
    path = shutil.which("chromium")
    assert path, "no chromium (Debian: apt install chromium)"
    # Its sandbox does not work as root, and only then is it left out.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=arguments)
        yield found
        found.close()


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
