"""Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright


class ChromiumMissing(RuntimeError):
    """There is no browser."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    path = shutil.which("chromium")
    if path is None:
        raise ChromiumMissing("no chromium (Debian: apt install chromium)")
    # Its sandbox does not work as root, and only then is it left out.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()
