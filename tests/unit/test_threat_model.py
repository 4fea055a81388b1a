"""The threat model names what is there: a protection that was moved or deleted must not go on being promised."""

import re
from pathlib import Path

import pytest

_PATH = re.compile(r"`((?:actors|adapters|daemon|learner|tests|docs|ops)/[\w./-]+)`")


@pytest.mark.parametrize("page", ["docs/security.md", "SECURITY.md"])
def test_every_file_that_it_names_is_there(page: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.config.rootpath
    text = (root / page).read_text()
    linked = [root / page.rpartition("/")[0] / name for name in re.findall(r"\]\(([\w./-]+)\)", text)]
    named = [root / name for name in _PATH.findall(text)]
    assert named or linked
    assert [str(path) for path in (*named, *linked) if not path.exists()] == []


def test_every_threat_names_a_test_or_is_said_to_have_none(request: pytest.FixtureRequest) -> None:
    text = (request.config.rootpath / "docs/security.md").read_text()
    threats = re.split(r"^### ", text.partition("## Threats")[2], flags=re.M)[1:]
    assert len(threats) > 10
    assert [
        threat.partition("\n")[0] for threat in threats if "`tests/" not in threat and "No test" not in threat
    ] == []
