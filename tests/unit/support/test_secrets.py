"""The scan for secrets: tests that leak on purpose fail, each by the place where it leaks."""

from pathlib import Path

import pytest

from tests.support.secret_scan import leaks, planted

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.prints_secrets  # those of the tests within
HEAD = """
import json, logging, pytest
from prometheus_client import CollectorRegistry, Counter
from tests.support.secret_scan import planted
pytest_plugins = ["tests.support.secret_scan"]
"""
LEAKING = """
def test_prints():
    print(planted("printed"))

def test_logs():
    logging.getLogger("x").warning("Authorization: Bearer k-secret")

def test_writes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tap.log").write_text(planted("written"))

def test_counts():
    global registry
    registry = CollectorRegistry()
    Counter("calls", "Calls.", ["key"], registry=registry).labels(planted("label")).inc()

def test_tells_the_brokers_password(tmp_path):
    (tmp_path / "credentials.json").write_text(json.dumps({"password": "0123456789abcdef"}))
    print("nats 0123456789abcdef")

@pytest.fixture
def early():
    print(planted("early"))

def test_leaks_in_setup(early):
    pass

def test_quiet(tmp_path):
    (tmp_path / "tap.log").write_text("key=4f9c02d1a7be status=401")

@pytest.mark.prints_secrets
def test_may_print():
    print(planted("shown"))
"""
FORMS = (
    "evk_0123456789ab_" + "Zq3" * 14 + "x", "Authorization: Bearer abcdefgh", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----", "connecting to nats://evolved:hunter22@127.0.0.1:4222",
    "postgresql+psycopg://me:password@db/evolved", "sk-" + "a1" * 12, planted("password"),
)  # fmt: skip


def test_tests_that_leak_fail_wherever_they_do_and_others_pass(
    pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    pytester.syspathinsert(request.config.rootpath)
    pytester.makeconftest(HEAD)
    pytester.makepyfile(HEAD.replace("pytest_plugins", "_") + LEAKING)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-v")
    assert result.parseoutcomes() == {"failed": 6, "passed": 2}
    for told in (
        "Captured stdout call: planted secret*", "Captured log call: bearer's token*", "a/tap.log: planted secret*",
        "metrics: planted secret*", "Captured stdout call: broker's password*", "Captured stdout setup: planted*",
    ):  # fmt: skip
        result.stdout.fnmatch_lines(f"*{told}")


def test_secrets_are_known_by_their_form_and_told_without_it() -> None:
    for text in FORMS:
        (leak,) = leaks(f"event=x {text} y=1")
        assert "event=x" in leak
        assert text not in leak


def test_our_own_sources_and_documents_hold_none_but_made_up_ones(request: pytest.FixtureRequest) -> None:
    """A key that somebody pasted into a page or a configuration would be found by everybody else."""
    root: Path = request.config.rootpath
    for pattern in ("docs/**/*.md", "ops/**/*", "daemon/**/*.py", "daemon/**/*.toml", "*.toml"):
        for path in filter(Path.is_file, root.glob(pattern)):
            text = path.read_text(encoding="utf-8", errors="replace")
            assert [leak for leak in leaks(text) if "key of ours" in leak or "vendor's" in leak] == [], path
