"""The control API tells what the store knows, and takes orders only from someone who means it."""

from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from rich.console import Console

from actors.messages import (
    Attributed,
    Attribution,
    Directive,
    Experience,
    Serving,
    Step,
    StepLabel,
    ToolCall,
    Trajectory,
)
from actors.store import Store
from daemon.control import Control
from daemon.status import show

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


def attributed(number: int, outcome: float | None = 1.0) -> Attributed:
    step = Step(exchange_id=f"e{number}", tool_calls=(ToolCall("book", '{"fid": "K1"}'),), observation='{"ref": "Z1"}')
    run = Trajectory(
        id=f"t{number}", goal="Book a flight", steps=(step,), outcome=outcome, started=number, ended=number + 1.0
    )
    labels = (StepLabel("GOOD", 0.9, "its result was used"),)
    return Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=labels, judge="rules", rubric="1"))


class Desk:
    """A control API over a fresh store, with what it sent."""

    def __init__(self, store: Store) -> None:
        self.store, self.sent, self.retried = store, list[Directive](), list[str]()
        self.curator: dict[str, int] = {}
        self.sentinel: dict[str, object] = {}
        self.registry = CollectorRegistry()
        self.control = Control(
            store=store, registry=self.registry, actors=lambda: (), send=self._send, retry=self._retry,
            describe={"sandbox": "travel"}, curator=lambda: self.curator,
            sentinel=lambda: self.sentinel, clock=lambda: 50.0,
        )  # fmt: skip
        transport = httpx.ASGITransport(self.control.app(["127.0.0.1"]))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def _send(self, directive: Directive) -> None:
        self.sent.append(directive)

    async def _retry(self, key: str) -> bool:
        self.retried.append(key)
        return key == "known"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()
    desk = Desk(store)
    async with desk.http:
        yield desk
    await store.aclose()


async def test_an_empty_system_has_a_status(desk: Desk) -> None:
    status = (await desk.http.get("/api/status")).json()
    assert status["success"]["rate"] is None
    assert status["serving"] is None
    assert status["frozen"] is False
    assert status["sandbox"] == "travel"


async def test_status_counts_success_with_its_interval(desk: Desk) -> None:
    await desk.store.save([attributed(n, float(n % 4 != 0)) for n in range(20)])
    success = (await desk.http.get("/api/status")).json()["success"]
    assert (success["rate"], success["n"]) == (0.75, 20)
    assert 0.5 < success["low"] < 0.75 < success["high"] < 0.9


async def test_status_says_how_much_of_the_training_is_replay_and_what_is_missing(desk: Desk) -> None:
    desk.curator = {"drawn": 40, "drawn_elsewhere": 4, "replay_missing": 6}
    out = StringIO()
    show((await desk.http.get("/api/status")).json(), Console(file=out, width=200))
    assert "10 % from other kinds of task than the leading; 6 trajectories short" in out.getvalue()


async def test_status_says_what_the_sentinel_did(desk: Desk) -> None:
    desk.sentinel = {
        "monitors": {"outcomes": {"previous_p": 0.2}},
        "told": [{"action": "freeze", "reason": "length x2"}],
    }
    status = (await desk.http.get("/api/status")).json()
    assert status["sentinel"]["monitors"]["outcomes"] == {"previous_p": 0.2}
    out = StringIO()
    show(status, Console(file=out, width=200))
    assert "freeze: length x2" in out.getvalue()


async def test_success_over_time_has_swaps_in_it(desk: Desk) -> None:
    await desk.store.save([attributed(n) for n in range(25)])
    swap = Serving(
        id="s", engine="serving", version=3, previous=0, path="p", result="swapped", since=9.0, paused_seconds=0.05
    )
    await desk.store.save([swap])
    data = (await desk.http.get("/api/success")).json()
    assert sum(point["n"] for point in data["points"]) == 25
    assert data["points"] == sorted(data["points"], key=lambda point: point["time"])
    assert data["swaps"] == [{"time": 9.0, "version": 3, "result": "swapped", "paused": 0.05}]


async def test_trajectories_show_credit_step_by_step(desk: Desk) -> None:
    await desk.store.save([attributed(1)])
    (item,) = (await desk.http.get("/api/trajectories?limit=5")).json()
    assert item["steps"] == [
        {
            "action": 'book({"fid": "K1"})',
            "observation": '{"ref": "Z1"}',
            "label": "GOOD",
            "confidence": 0.9,
            "reason": "its result was used",
        }
    ]


async def test_one_trajectory_comes_with_its_lineage(desk: Desk) -> None:
    await desk.store.save([attributed(1)])
    answer = await desk.http.get("/api/trajectories/t1")
    assert answer.status_code == 200
    assert "lineage" in answer.json()
    assert (await desk.http.get("/api/trajectories/none")).status_code == 404


async def test_lessons_are_listed(desk: Desk) -> None:
    await desk.store.save([Experience(id="x", when_to_use="book", content="book:buy", guided=(4, 3))])
    (lesson,) = (await desk.http.get("/api/lessons")).json()
    assert (lesson["when_to_use"], lesson["guided"]) == ("book", [4, 3])


async def test_freeze_and_thaw_send_a_directive_with_its_reason(desk: Desk) -> None:
    assert (await desk.http.post("/api/freeze", json={"reason": "incident"})).status_code == 200
    assert (await desk.http.post("/api/thaw", json={})).status_code == 200
    assert [(d.kind, d.reason, d.origin) for d in desk.sent] == [
        ("freeze", "incident", "control"),
        ("thaw", "by hand", "control"),
    ]


@pytest.mark.parametrize(("body", "kind"), [(b"reason=x", "application/x-www-form-urlencoded"), (b"{}", "text/plain")])
async def test_a_form_of_another_page_cannot_freeze(desk: Desk, body: bytes, kind: str) -> None:
    answer = await desk.http.post("/api/freeze", content=body, headers={"content-type": kind})
    assert answer.status_code == 415
    assert desk.sent == []


async def test_a_body_that_is_no_object_is_refused_with_an_example(desk: Desk) -> None:
    answer = await desk.http.post("/api/freeze", content=b"[1]", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "incident" in answer.json()["error"]["message"]


async def test_another_host_name_is_not_answered(desk: Desk) -> None:
    assert (await desk.http.get("/api/status", headers={"host": "evil.example"})).status_code == 400


async def test_retry_of_an_unknown_letter_is_404(desk: Desk) -> None:
    assert (await desk.http.post("/api/dead/known/retry")).status_code == 200
    assert (await desk.http.post("/api/dead/other/retry")).status_code == 404


async def test_metrics_are_prometheus_text(desk: Desk) -> None:
    Counter("evolved_test", "A count.", registry=desk.registry).inc()
    assert "evolved_test_total 1.0" in (await desk.http.get("/metrics")).text


async def test_the_dashboard_is_served_with_its_script(desk: Desk) -> None:
    assert "<title>evolved</title>" in (await desk.http.get("/")).text
    assert (await desk.http.get("/app.js")).status_code == 200
