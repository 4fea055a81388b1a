"""A pytest plug-in: gives each test its time, and tells `.ci/suites.py` what begins, how it ends, and of what kind a
failure is: weather (a time-out, a lost connection, a set-up), a broken promise, or any other.

The runner names a file in EVOLVED_PROGRESS, where each process that runs tests adds JSON lines, and, to run a part of
the tests, a JSON list of their ids in EVOLVED_ONLY.
"""

import json
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import SLOW

TEST_SECONDS = 300.0
"""Of a test that does not say otherwise with `@pytest.mark.timeout`, on a quiet machine."""
_WEATHER = {
    "TimeoutError", "TimeoutExpired", "TimeoutException", "TooSlowError", "Late", "ConnectionError", "TransportError",
    "APIConnectionError", "URLError", "IncompleteRead", "NoServersError", "ConnectionClosedError",
}  # fmt: skip
"""Of any library, a base class included: a suite with an environment of its own need not have ours to import."""
_MOST_TEXT = 8_000


def _one_is_weather(error: BaseException) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    # pytest-timeout fails a test as any other does; an HTTP status is an answer, and no lost connection.
    timed_out = "Failed" in names and str(error).startswith("Timeout (>")
    if timed_out or ("HTTPError" not in names and not _WEATHER.isdisjoint(names)):
        return True
    return error.__cause__ is not None and _one_is_weather(error.__cause__)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def is_weather(error: BaseException) -> bool:
    """Whether all that went wrong is a time-out or a lost connection, which a busy machine explains as well."""
    return all(_one_is_weather(leaf) for leaf in _leaves(error))


class Progress:
    """The plug-in, of one process that runs tests."""

    def __init__(self, path: str, only: str) -> None:
        self.path, self.only = path, only
        self._ends: dict[str, Any] = {}

    def _say(self, **line: object) -> None:
        # One write a line, at the end of the file whoever wrote last: workers share it.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.only:
            wanted = set(json.loads(Path(self.only).read_text()))
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
            items[:] = [item for item in items if item.nodeid in wanted]
        self._say(collected=[item.nodeid for item in items])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(end=report.nodeid, outcome="failed", kind="collection", seconds=0.0, why=_text(report))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        self._ends = {"outcome": "passed", "kind": "", "why": ""}
        began = time.monotonic()
        self._say(begin=item.nodeid, pid=os.getpid(), limit=_limit(item), at=time.time())
        yield
        self._say(end=item.nodeid, seconds=round(time.monotonic() - began, 3), **self._ends)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        report: pytest.TestReport = (yield).get_result()
        if report.skipped and self._ends["outcome"] == "passed":
            self._ends["outcome"] = "skipped"
        if not report.failed:
            return
        if call.excinfo is not None and is_weather(call.excinfo.value):
            kind = "weather"
        elif getattr(report, "promise", False) or item.get_closest_marker("promise") is not None:
            kind = "promise"
        else:
            kind = "setup" if report.when == "setup" else "assertion"
        # The worst of set-up, call and teardown: what follows a broken promise does not excuse it.
        if self._ends["kind"] != "promise":
            self._ends = {"outcome": "failed", "kind": kind, "why": _text(report)}


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longreprtext
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT // 4]}\n...\n{text[-3 * _MOST_TEXT // 4 :]}"


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Called by pytest: each test has its time, more on a slow machine; --timeout says otherwise."""
    for item in items if config.getoption("timeout", None) is None else ():
        item.add_marker(pytest.mark.timeout((_limit(item) or TEST_SECONDS) * SLOW), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by pytest-xdist for each worker that it starts."""
    plugin = node.config.pluginmanager.getplugin("progress")
    if plugin is not None:
        node.workerinput["progress"] = (plugin.path, plugin.only)


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest. What the runner says is for this session, not for what tests start."""
    path, only = os.environ.pop("EVOLVED_PROGRESS", ""), os.environ.pop("EVOLVED_ONLY", "")
    path, only = getattr(config, "workerinput", {}).get("progress", (path, only))
    if path:
        config.pluginmanager.register(Progress(path, only), "progress")
