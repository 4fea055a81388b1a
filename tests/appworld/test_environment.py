"""AppWorld's own verdicts and answers through the environment, hostile calls, and processes that die or hang."""

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from actors.messages import ToolCall
from actors.ports.errors import EnvironmentFailed
from adapters.environments.appworld import AppWorldEnvironment, AppWorldEpisode
from tests.appworld.rig import PYTHON
from tests.support.environment_promises import run_out
from tests.support.patience import until, wait_until, within
from tests.support.process import Process, alive

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(within(300))]
SIGN_UP, QUESTION = "aaaaaa1_1", "aaaaaa1_2"
PASSWORD = "Wr0ng-horse"
ADA = {"first_name": "Ada", "last_name": "Lane", "email": "ada@example.com", "password": PASSWORD}


@pytest.fixture
def appworld(shared: Callable[[str], AppWorldEnvironment], anyio_backend: str) -> AppWorldEnvironment:
    return shared(anyio_backend)


@pytest.fixture
async def begun(appworld: AppWorldEnvironment) -> AsyncIterator[Callable[[str], Awaitable[AppWorldEpisode]]]:
    episodes: list[AppWorldEpisode] = []

    async def begin(task: str) -> AppWorldEpisode:
        episodes.append(await appworld.reset(appworld.task(task)))
        return episodes[-1]

    yield begin
    for episode in episodes:
        await episode.aclose()


async def call(episode: AppWorldEpisode, name: str, /, **arguments: object) -> str:
    return (await episode.step([ToolCall(name, json.dumps(arguments), "c")], "")).text


async def test_all_apis_are_tools_and_a_setting_narrows_them_to_some_apps(appworld, root):
    assert len(appworld.tools()) == 457
    few = AppWorldEnvironment(root, python=PYTHON, apps=["gmail"])
    assert {tool["function"]["name"].partition("__")[0] for tool in few.tools()} == {"gmail", "supervisor"}


END = ("supervisor__complete_task", {})
SIGNED = ("gmail__signup", ADA)


@pytest.mark.parametrize(
    ("calls", "passed", "outcome"),
    [
        # Nobody else has an account, which AppWorld counts as passed and does not take for success.
        pytest.param([], 1, 0.0, id="doing nothing"),
        pytest.param([END], 1, 0.0, id="saying that it is done"),
        pytest.param([SIGNED, END], 2, 1.0, id="the right calls"),
        pytest.param([SIGNED, ("gmail__signup", ADA | {"email": "eve@example.com"}), END], 1, 0.0, id="a side effect"),
    ],
)
async def test_the_outcome_is_appworlds_verdict(begun, calls, passed, outcome):
    episode = await begun(SIGN_UP)
    for name, arguments in calls:
        assert await episode.evaluate() == 0.0
        await call(episode, name, **arguments)
    await run_out(episode)
    assert await episode.verdict() == {"success": outcome == 1.0, "passed": passed, "tests": 2}
    assert await episode.evaluate() == outcome


ODD = ("\ud800", "\x00", "9" * 5000, 10**4000, [], {"a": 1}, True, "a" * 100_000)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [({"answer": "5550001"}, 1.0), ({"answer": "5550002"}, 0.0), ({}, 0.0), *(({"answer": odd}, 0.0) for odd in ODD)],
)
async def test_a_question_is_judged_by_its_answer_and_an_odd_one_is_no_more_than_wrong(begun, given, outcome):
    episode = await begun(QUESTION)
    profile = await call(episode, "supervisor__show_profile")
    assert json.loads(profile)["phone_number"] == "5550001"
    assert "Traceback" not in await call(episode, "supervisor__complete_task", **given)
    await run_out(episode)
    assert await episode.evaluate() == outcome


async def test_a_wrong_call_is_an_observation_in_appworlds_words_without_a_trace(begun):
    episode = await begun(SIGN_UP)
    await call(episode, "gmail__signup", **ADA)
    wrong = await call(episode, "gmail__login", username="ada@example.com", password="another")
    assert wrong == 'Error: Response status code is 401:\n{"message":"Invalid credentials"}'
    missing = await call(episode, "gmail__login", username="ada@example.com")
    assert missing.startswith("Error: Response status code is 422")
    assert "Traceback" not in wrong + missing
    token = json.loads(await call(episode, "gmail__login", username="ada@example.com", password=PASSWORD))
    shown = await call(episode, "gmail__show_account", access_token=token["access_token"])
    assert json.loads(shown)["email"] == "ada@example.com"


async def test_what_follows_the_end_in_the_same_turn_is_not_executed(begun):
    episode = await begun(SIGN_UP)
    calls = [
        ToolCall("supervisor__complete_task", "{}", "end"),
        ToolCall("gmail__signup", json.dumps(ADA), "late"),
    ]
    seen = await episode.step(calls, "")
    assert [message["tool_call_id"] for message in seen.messages] == ["end", "late"]
    assert (seen.done, seen.messages[1]["content"]) == (True, "The task is over.")
    assert await episode.evaluate() == 0.0


async def test_two_attempts_that_do_the_same_reach_the_same_state_and_another_does_not(appworld):
    states = []
    for email in ("ada@example.com", "ada@example.com", "eve@example.com"):
        episode = await appworld.reset(appworld.task(SIGN_UP))
        before = await episode.state()
        await call(episode, "supervisor__show_profile")
        assert await episode.state() == before, "reading is no change"
        await call(episode, "gmail__signup", **ADA | {"email": email})
        states.append(await episode.state())
        await episode.aclose()
    assert states[0] == states[1] != before
    assert {app for app in states[0] if states[0][app] != states[2][app]} == {"gmail"}


async def test_code_in_a_call_stays_a_string(appworld, tmp_path):
    """The payload works where AppWorld is sent it as code, and does nothing here, wherever it stands."""
    mark = tmp_path / "executed"
    code = f"import os; os.makedirs({str(mark)!r})"
    bare = await appworld.pool.open(SIGN_UP, experiment_name="bare")
    await bare.post("execute", code=code)
    assert mark.exists(), "the payload is harmless: this test would show nothing"
    mark.rmdir()
    await bare.aclose()
    episode = await appworld.reset(appworld.task(SIGN_UP))
    make = f"__import__('os').makedirs({str(mark)!r})"
    quotes = ["'", '"', "'''", '"""', "\\'", "')) or ", "'}))\n", "\u2028", "\x00"]
    texts = [f"{quote}{inner}{quote}" for quote in quotes for inner in (make, code)]
    calls = [ToolCall("gmail__signup", json.dumps({**ADA, "first_name": text}), "value") for text in texts]
    calls += [ToolCall("gmail__signup", json.dumps({**ADA, text: 1}), "key") for text in texts]
    calls += [ToolCall(f"gmail__signup{text}", "{}", "name") for text in texts]
    calls += [ToolCall("gmail__signup", text, "arguments") for text in texts]
    own = ("_app_name", "_system_datetime", "raise_on_failure")
    calls += [ToolCall("gmail__signup", json.dumps({**ADA, name: True}), "own") for name in own]
    calls += [ToolCall(name, "{}", "private") for name in ("gmail____class__", "admin__signup", "requester__request")]
    for turn in range(0, len(calls), 10):
        await episode.step(calls[turn : turn + 10], make)
    assert not mark.exists()
    await episode.aclose()


async def test_a_killed_process_costs_its_attempt_alone_and_killing_all_of_them_is_recovered_from(appworld):
    episode, other = [await appworld.reset(appworld.task(SIGN_UP)) for _ in range(2)]
    (pid, _) = appworld.pool.pids
    deaths = appworld.pool.deaths
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match="died"):
        await call(episode, "supervisor__show_profile")
    with pytest.raises(EnvironmentFailed, match="died"):
        await episode.state()
    assert appworld.pool.deaths == deaths + 1
    assert not alive(pid)
    assert "Ada" in await call(other, "supervisor__show_profile")
    (pid,) = appworld.pool.pids
    os.kill(appworld.pool.template_pid, signal.SIGKILL)
    await until(lambda: not alive(pid), "the process is gone")
    with pytest.raises(EnvironmentFailed, match="died"):
        await call(other, "supervisor__show_profile")
    again = await appworld.reset(appworld.task(SIGN_UP))
    assert "Ada" in await call(again, "supervisor__show_profile")
    assert len(appworld.pool) == 1
    for one in (episode, other, again):
        await one.aclose()
    assert len(appworld.pool) == 0


async def test_a_process_that_hangs_is_killed_at_the_deadline_and_frees_its_place(appworld, monkeypatch):
    episode = await appworld.reset(appworld.task(SIGN_UP))
    (pid,) = appworld.pool.pids
    with monkeypatch.context() as patched:
        patched.setattr(appworld.pool, "deadline", 0.5)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EnvironmentFailed, match=r"no answer to 'execute' in 0.5 seconds"):
            await call(episode, "supervisor__show_profile")
    assert not alive(pid)
    assert len(appworld.pool) == 0
    await (await appworld.reset(appworld.task(SIGN_UP))).aclose()


async def test_where_all_places_are_taken_one_waits_and_is_refused_and_forgotten_attempts_are_given_up(
    appworld, monkeypatch
):
    pool, now = appworld.pool, [0.0]
    for name, value in (("wait_seconds", 0.2), ("idle", 10.0), ("clock", lambda: now[0])):
        monkeypatch.setattr(pool, name, value)
    refused, reaped = pool.refused, pool.reaped
    forgotten, other, used = [await appworld.reset(appworld.task(SIGN_UP)) for _ in range(3)]
    with pytest.raises(EnvironmentFailed, match="max_instances is 3: close attempts or raise it"):
        await appworld.reset(appworld.task(SIGN_UP))
    assert pool.refused == refused + 1
    now[0] = 8.0
    await call(used, "supervisor__show_profile")
    now[0] = 12.0
    episode = await appworld.reset(appworld.task(SIGN_UP))
    assert (pool.reaped, len(pool)) == (reaped + 2, 2)
    with pytest.raises(EnvironmentFailed, match="left alone for so long"):
        await call(forgotten, "supervisor__show_profile")
    assert "Ada" in await call(used, "supervisor__show_profile")
    for one in (forgotten, other, used, episode):
        await one.aclose()


async def test_its_processes_see_none_of_our_variables_and_nobody_else_can_reach_them(appworld, monkeypatch):
    monkeypatch.setenv("EVOLVED_SECRET", "do-not-tell")
    episode = await appworld.reset(appworld.task(SIGN_UP))
    (pid,) = appworld.pool.pids
    for process in (pid, appworld.pool.template_pid):
        names = {item.partition("=")[0] for item in Path(f"/proc/{process}/environ").read_text().split("\0") if item}
        assert names == {
            "PATH", "LANG", "TZ", "HOME", "APPWORLD_ROOT", "APPWORLD_CACHE", "APPWORLD_SERVER_MEMORY"
        }  # fmt: skip
    sockets = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if "socket:" in os.readlink(link)}
    listening = set()
    for table in ("tcp", "tcp6"):
        rows = [row.split() for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
        listening |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    assert sockets
    assert not sockets & listening
    home = Path(f"/proc/{pid}/cwd").readlink().parent
    assert home.stat().st_mode & 0o777 == 0o700
    await episode.aclose()
    assert time.time() > 1_700_000_000, "time stands still in AppWorld's process, not in ours"


STARTS_AND_WAITS = """
import sys, time, anyio
from adapters.environments.appworld import AppWorldEnvironment
environment = AppWorldEnvironment(sys.argv[1], python=sys.argv[2])
async def main():
    await environment.reset(environment.task(sys.argv[3]))
anyio.run(main)
print(environment.pool.template_pid, environment.pool.pids[0], environment.pool._home, flush=True)
time.sleep(600)
"""


def test_its_processes_end_when_their_daemon_is_killed(root, tmp_path):
    log = tmp_path / "log"
    with Process([sys.executable, "-c", STARTS_AND_WAITS, root, PYTHON, SIGN_UP], log) as daemon:
        daemon.until(lambda: log.read_text().endswith("\n"), 120)
        template, attempt, home = log.read_text().splitlines()[-1].split()
        assert alive(int(template))
        assert alive(int(attempt))
        os.kill(daemon.pid, signal.SIGKILL)  # it alone: the rest must see to its own end
        daemon.wait()
        wait_until(lambda: not (alive(int(template)) or alive(int(attempt))), "both processes are gone")
        wait_until(lambda: not Path(home).exists(), "so is their home")


async def test_the_users_data_directory_is_only_read(appworld, root):
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    episode = await appworld.reset(appworld.task(SIGN_UP))
    await call(episode, "gmail__signup", **ADA)
    await call(episode, "supervisor__complete_task")
    assert await episode.evaluate() == 1.0
    await episode.aclose()
    after = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert after == before
