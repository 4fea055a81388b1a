"""The OpenAPI adapter and its guard on APIs that somebody else wrote: AppWorld's ten apps, live."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import structlog

from adapters.live import Operation
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.openapi import AuthSettings, OpenApiApi, OpenApiSettings
from adapters.live.policy import PolicySettings
from adapters.live.recording import Recordings
from tests.appworld import rig
from tests.support.patience import within

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(within(300))]
PASSWORD = "Wr0ng-horse battery&staple"
METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return rig.documents(tmp_path_factory.mktemp("documents"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rig.server(tmp_path_factory.mktemp("server")) as url:
        yield url


def gmail(server: str, directory: Path, email: str) -> OpenApiApi:
    key = directory / "password"
    key.write_text(PASSWORD)
    document = f"{server}/gmail/openapi.json"
    # OAuth 2 with a password, whatever it is called there.
    (scheme,) = httpx.get(document, timeout=60.0).json()["components"]["securitySchemes"]
    auth = {scheme: AuthSettings(username=email, key_file=str(key))}
    return OpenApiApi("gmail", OpenApiSettings(document=document, auth=auth))


def named(tools: Sequence[Operation], start: str) -> str:
    return next(tool.name for tool in tools if tool.name.startswith(start))


async def test_all_operations_of_all_ten_apps_become_tools(documents: dict[str, Path]) -> None:
    assert len(documents) == 10
    operations = 0
    for app, path in documents.items():
        api = OpenApiApi(app, OpenApiSettings(document=str(path), server="http://127.0.0.1:1"))
        tools = await api.tools()
        await api.aclose()
        described = [
            operation
            for item in json.loads(path.read_text())["paths"].values()
            for method, operation in item.items()
            if method in METHODS
        ]
        assert not api.skipped
        assert len({tool.name for tool in tools}) == len(tools) == len(described)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name) for tool in tools)
        assert {tool.title or tool.name for tool in tools} == {one["operationId"] for one in described}
        assert "$ref" not in json.dumps([tool.parameters for tool in tools])
        operations += len(tools)
    assert operations == 463


async def test_an_account_is_used_live_and_nothing_secret_is_shown(server: str, tmp_path: Path) -> None:
    recordings, audit = Recordings(tmp_path / "answers"), AuditLog(tmp_path / "audit.jsonl")
    policy = PolicySettings(mode="live", allow=("*",), deny=("delete_account*",))
    shown: list[str] = []
    odd: dict[str, str] = {}
    with structlog.testing.capture_logs() as logs:
        api = gmail(server, tmp_path, "ada@example.com")
        guard = Guarded(api, policy, recordings=recordings, audit=audit)
        tools = await guard.tools()

        async def call(start: str, **arguments: object) -> object:
            result = await guard.call(named(tools, start), arguments)
            shown.append(str(result))
            assert (result.source, result.error) == ("live", False), result.text
            odd[start] = result.mismatch
            return result.structured

        # Nobody can log in before there is an account: the token is fetched at the first call that needs it.
        await call("signup_", first_name="Ada", last_name="L", email="ada@example.com", password=PASSWORD)
        account = await call("show_account_")
        assert isinstance(account, dict)
        assert account["email"] == "ada@example.com"
        draft = await call("create_draft_", subject="Plans", body="Tea?", recipient_email_addresses=["ada@example.com"])
        assert isinstance(draft, dict)
        await call("update_draft_", draft_id=draft["draft_id"], subject="Other plans")
        found = await call("show_draft_", draft_id=draft["draft_id"])
        assert isinstance(found, dict)
        assert found["subject"] == "Other plans"
        listed = await call("show_drafts_", page_limit=5)
        assert isinstance(listed, list)
        assert len(listed) == 1
        # The API hands its token to whoever logs in: the agent learns that it worked, not with what.
        login = await guard.call(named(tools, "login_"), {"username": "ada@example.com", "password": PASSWORD})
        shown.append(str(login))
        assert "REDACTED" in login.text
        wrong = await guard.call(named(tools, "show_draft_"), {"draft_id": 4711})
        mistake = await guard.call(named(tools, "show_drafts_"), {"page_limit": "many"})
        shown += [str(wrong), str(mistake)]
        with pytest.raises(StopIteration):
            named(tools, "delete_account")
        tokens = {secret for secret in api.secrets() if len(secret) > 40}
        await guard.aclose()
        audit.close()
    # It sends nulls where its own document has none: that is noted, and the answer is given.
    assert (odd["show_account_"], "None is not of type" in odd["show_draft_"]) == ("", True)
    assert (wrong.error, wrong.status >= 400) == (True, True)
    assert (mistake.error, mistake.status) == (True, 0)
    assert "page_limit" in mistake.text
    assert tokens
    kept = "".join(path.read_text() for path in (tmp_path / "answers").glob("*.json"))
    everything = "\n".join((*shown, repr(logs), (tmp_path / "audit.jsonl").read_text(), kept))
    assert not [secret for secret in api.secrets() if secret in everything]
    assert PASSWORD not in everything
