"""`evolved why RUN`: what was reported, when, how late, and what each report came to; by any id that somebody knows."""

from pathlib import Path

import anyio
import pytest

from actors.messages import Feedback
from actors.store import Store
from daemon.settings.reading import load
from tests.support.experience import Desk
from tests.support.late_feedback import BATCH, Daemon
from tests.support.traffic import exchange
from tests.unit.daemon.cli.conftest import Evolved

KEYS = tuple(f"late{number}" for number in range(BATCH))


@pytest.fixture(autouse=True)
def runs(tmp_path: Path) -> None:
    """Four runs, told two hours after, trained into v1; the first one is corrected since. One call is not over."""

    async def fill() -> None:
        store = Store(load(None, [f"state_dir={tmp_path}"]).store_url, clock=lambda: 5000.0)
        await store.open()
        daemon = await Daemon(store, tmp_path).start()
        await daemon.run(*KEYS)
        daemon.now += 7200.0
        for key in KEYS:
            await daemon.say(key, 1.0)
        await daemon.hear()
        await daemon.answer(1)
        await daemon.say(KEYS[0], 0.0, text="came back")
        await daemon.run("4711")
        await store.save([exchange("open", 0), Feedback(id="lost", received=1.0, response_id="nowhere", outcome=1.0)])
        await store.aclose()

    anyio.run(fill)


def test_it_says_what_was_reported_how_late_and_what_came_of_each(evolved: Evolved) -> None:
    told = evolved(f"why r-default-{KEYS[0]}-0").out
    for words in (
        "of         default, sampled by v0", "correction 1: 0, reported", "2 hours after its end",
        "outcome, 1, was the first word on the run", "trained into v1, by order",
        "reported when it was in that order: it is not trained on again", "corrected it",
        "weighs in what is known of its kind of goal", "is contrasted with others for lessons",
    ):  # fmt: skip
        assert words in told, words


@pytest.mark.parametrize("name", ["x-default-late0-0", "r-default-late0-0", "f1-late0"])
def test_a_run_is_named_by_its_calls_answers_and_reports(evolved: Evolved, name: str) -> None:
    told = evolved.json(f"why {name}")
    assert [(report["outcome"], report["did"]) for report in told["reports"]] == [(1.0, "told"), (0.0, "correction")]
    assert evolved.json(f"why {told['trajectory_id']}") == told


def test_an_unknown_name_and_a_run_that_is_not_over_are_told(evolved: Evolved) -> None:
    for name, words in (
        ("nobody", "no run 'nobody' in the store"), ("r-default-open-0", "its run is still open"),
        ("lost", "or was never seen"), ("9", "evolved why --run 9"), ("--run 9", "no run '9'"),
    ):  # fmt: skip
        assert words in evolved(f"why {name}", 2).err


@pytest.mark.anyio
async def test_the_control_api_tells_the_same(tmp_path: Path) -> None:
    store = Store(load(None, [f"state_dir={tmp_path}"]).store_url, clock=lambda: 5000.0)
    await store.open()
    async with Desk(store, tmp_path).http() as http:
        told = (await http.get(f"/api/why/r-default-{KEYS[0]}-0")).json()
        assert (told["came"], told["outcome"], told["used"]) == ("learned", 0.0, {"curator": 1, "experiencer": 1})
        missing = await http.get("/api/why/nobody")
        assert missing.status_code == 404
        assert "no run 'nobody'" in missing.json()["error"]["message"]
    await store.aclose()
