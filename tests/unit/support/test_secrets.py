"""The scan for secrets knows each form that a secret has."""

from pathlib import Path

import pytest

from tests.support.secret_scan import leaks, planted

pytestmark = pytest.mark.prints_secrets
FORMS = (
    "evk_0123456789ab_" + "Zq3" * 14 + "x", "Authorization: Bearer abcdefgh", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----", "connecting to nats://evolved:hunter22@127.0.0.1:4222",
    "postgresql+psycopg://me:password@db/evolved", "sk-" + "a1" * 12, planted("password"),
)  # fmt: skip


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
