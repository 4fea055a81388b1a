"""A pytest plug-in: a test fails if a secret shows in what was printed or logged, in a log file, or in a metric.

Secrets are known by their form (our keys, bearers' tokens, private keys, passwords in URLs, vendors' API keys), by
being made with `planted`, or by lying in a `credentials.json` below the test's directory. Looked at are, of each test:
captured output and log, `*.log` below its `tmp_path`, and the text of every registry of metrics that was made during
it; and at the end, `*.log` of the whole run, for those of fixtures that live longer.

A test whose purpose is to print a key says so: `@pytest.mark.prints_secrets`. Files are still looked at.
"""

import functools
import json
import re
import weakref
from collections.abc import Generator, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

FORMS = {
    "key of ours": re.compile(r"evk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}"),
    "bearer's token": re.compile(r"(?i)\bbearer (?!evk_\.\.\.|evk_…)[A-Za-z0-9._~+/=-]{7,}"),
    "private key": re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"),
    "password in a URL": re.compile(r"\b[a-z][a-z0-9+]*://[^/\s:@'\"<>{}]+:[^/\s:@'\"<>{}*]{4,}@"),
    "vendor's API key": re.compile(r"\b(?:sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{36})"),
    "planted secret": re.compile(r"planted-[a-z-]+-[0-9a-f]{16}"),
}
_MOST_BYTES = 32 << 20
"""Of a log file."""


def planted(name: str) -> str:
    """A secret for a test, in a form that is found wherever it shows; `name` is of a-z and -."""
    return f"planted-{name}-{sha256(name.encode()).hexdigest()[:16]}"


def leaks(text: str, known: dict[str, str] | None = None) -> list[str]:
    """What secrets are in `text`: what kind each is and what stands before it, never the secret itself.

    Args:
        known: secrets beside those known by form, with what they are.
    """
    found: list[str] = []
    for kind, form in FORMS.items():
        found += [_told(kind, text, match.start()) for match in form.finditer(text)]
    for value, kind in (known or {}).items():
        if value in text:
            found.append(_told(kind, text, text.index(value)))
    return found


def _told(kind: str, text: str, at: int) -> str:
    before = text[max(0, at - 80) : at].rpartition("\n")[2]
    return f"{kind} after {before!r}"


def leaks_in_files(directory: Path, known: dict[str, str] | None = None) -> Iterator[str]:
    """As `leaks`, of the logs below `directory`."""
    for path in sorted(directory.rglob("*.log")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode("utf-8", "replace")
            yield from (f"{path.relative_to(directory)}: {leak}" for leak in leaks(text, known))


def _credentials(directory: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in directory.rglob("credentials.json"):
        try:
            value = json.loads(path.read_bytes()).get("password")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(value, str) and len(value) >= 8:
            found[value] = "broker's password"
    return found


class SecretScan:
    """The plug-in. Registries of metrics are noted as they are made."""

    def __init__(self) -> None:
        self._registries: list[weakref.ref[CollectorRegistry]] = []
        self._told: set[str] = set()
        self._late: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        init, registries = CollectorRegistry.__init__, self._registries

        @functools.wraps(init)
        def noting(registry: CollectorRegistry, *arguments: object, **named: object) -> None:
            init(registry, *arguments, **named)  # type: ignore[arg-type]
            registries.append(weakref.ref(registry))

        CollectorRegistry.__init__ = noting  # type: ignore[assignment,method-assign]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, object, None]:
        outcome = yield
        report = outcome.get_result()  # type: ignore[attr-defined]
        if report.when == "setup":
            self._told.clear()
        if report.when == "setup" or not report.passed:
            return
        found: list[str] = []
        directory = getattr(item, "funcargs", {}).get("tmp_path")
        known = _credentials(directory) if isinstance(directory, Path) else {}
        if item.get_closest_marker("prints_secrets") is None:
            for name, text in report.sections:
                found += [f"{name}: {leak}" for leak in leaks(text, known)]
        if isinstance(directory, Path):
            found += leaks_in_files(directory, known)
        if report.when == "call":
            found += [f"metrics: {leak}" for leak in leaks(self._metrics(), known)]
        new = [leak for leak in dict.fromkeys(found) if leak not in self._told]
        if new:
            self._told.update(new)
            report.outcome, report.promise = "failed", True  # for the runner: red at once
            report.longrepr = "a secret shows where nobody should see one:\n  " + "\n  ".join(new)

    def _metrics(self) -> str:
        shown: list[str] = []
        for reference in self._registries:
            registry = reference()
            if registry is not None:
                try:
                    shown.append(generate_latest(registry).decode())
                except Exception:
                    continue
        self._registries.clear()
        return "\n".join(shown)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        factory = getattr(session.config, "_tmp_path_factory", None)
        base = getattr(factory, "_basetemp", None)
        if base is not None and base.is_dir() and session.exitstatus == 0:
            self._late = list(leaks_in_files(base, _credentials(base)))
            if self._late:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for leak in self._late:
            terminalreporter.write_line(f"a secret in a log: {leak}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.addinivalue_line("markers", "prints_secrets: its purpose is to print a key")
    config.pluginmanager.register(SecretScan(), "secret-scan")
