"""The control API tells what the store knows, and takes orders only from someone who means it."""

from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter

from actors.deployment.fleet import EngineView, Fleet
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
    Verdict,
)
from actors.messages.signing import record_problem, sign
from actors.store import Store
from daemon.api.control import Control
from daemon.api.killswitch import KillSwitch
from daemon.api.orders import Orders
from daemon.cli.output import screen
from daemon.cli.status import show
from tests.support.fakes import candidate
from tests.support.keys import key_pair

pytestmark = pytest.mark.anyio


def attributed(number: int, outcome: float | None = 1.0) -> Attributed:
    step = Step(exchange_id=f"e{number}", tool_calls=(ToolCall("book", '{"fid": "K1"}'),), observation='{"ref": "Z1"}')
    run = Trajectory(
        id=f"t{number}", goal="Book a flight", steps=(step,), outcome=outcome, started=number, ended=number + 1.0
    )
    labels = (StepLabel("GOOD", 0.9, "its result was used"),)
    return Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=labels, judge="rules", rubric="1"))


class Desk:
    """A control API over a fresh store, with what it sent."""

    def __init__(self, store: Store, state: Path) -> None:
        self.store, self.sent, self.retried = store, list[Directive](), list[str]()
        self.now = 50.0
        self.curator: dict[str, int] = {}
        self.sentinel: dict[str, object] = {}
        self.registry = CollectorRegistry()
        self.fleet, self.kill = Fleet(), KillSwitch(state)
        self.key, self.keys = key_pair(state / "keys")
        self.orders = Orders(
            store=store, fleet=lambda: self.fleet, kill=self.kill, send=self._send, key=self.key, keys=self.keys,
            clock=lambda: 50.0,
        )  # fmt: skip
        self.control = Control(
            store=store, registry=self.registry, actors=lambda: (), orders=self.orders, retry=self._retry,
            describe={"sandbox": "travel"}, curator=lambda: self.curator, sentinel=lambda: self.sentinel,
            clock=lambda: self.now, fleet=lambda: self.fleet, halted=self.kill.reason,
        )  # fmt: skip
        transport = httpx.ASGITransport(self.control.app(["127.0.0.1"]))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def _send(self, directive: Directive) -> None:
        await self.store.save([directive])
        self.sent.append(directive)

    async def _retry(self, key: str) -> bool:
        self.retried.append(key)
        return key == "known"


@pytest.fixture
async def desk(tmp_path: Path, store_url: str) -> AsyncIterator[Desk]:
    store = Store(store_url, clock=lambda: 1.0)
    await store.open()
    desk = Desk(store, tmp_path)
    async with desk.http:
        yield desk
    await store.aclose()


async def test_an_empty_system_has_a_status(desk: Desk) -> None:
    status = (await desk.http.get("/api/status")).json()
    assert status["success"]["rate"] is None
    assert status["serving"] is None
    assert status["frozen"] is False
    assert status["learning"] == {}
    assert status["sandbox"] == "travel"


async def test_status_counts_success_with_its_interval(desk: Desk) -> None:
    await desk.store.save([attributed(n, float(n % 4 != 0)) for n in range(20)])
    success = (await desk.http.get("/api/status")).json()["success"]
    assert (success["rate"], success["n"]) == (0.75, 20)
    assert 0.5 < success["low"] < 0.75 < success["high"] < 0.9


async def test_status_says_how_many_parties_have_evidence_and_whether_the_rule_binds(desk: Desk) -> None:
    async def told(keys: str) -> tuple[int, bool, str]:
        for place, key in enumerate(keys):
            for item in (attributed(10 * ord(key) + n) for n in range(4)):
                run = msgspec.structs.replace(item.trajectory, caller=key)
                # As it is kept before it is attributed, and after.
                await desk.store.save([run if place % 2 else msgspec.structs.replace(item, trajectory=run)])
        desk.now += 60.0
        status = (await desk.http.get("/api/status")).json()
        out = StringIO()
        show(status, screen(out))
        assert status["parties"]["sentence"] in out.getvalue()
        return tuple(status["parties"].values())

    assert await told("") == (0, False, "0 with evidence; the caps bind from 4 on")
    assert await told("a") == (1, False, "1 with evidence; its word decides; the caps bind from 4 on")
    assert (await told("b"))[2] == "2 with evidence; the caps bind from 4 on, so one party's word can decide"
    assert await told("cdef") == (6, True, "6 with evidence; none weighs more than a third")


async def test_status_says_how_much_of_the_training_is_replay_and_what_is_missing(desk: Desk) -> None:
    desk.curator = {"drawn": 40, "drawn_elsewhere": 4, "replay_missing": 6}
    out = StringIO()
    show((await desk.http.get("/api/status")).json(), screen(out))
    assert "10 % from other kinds of task than the leading; 6 trajectories short" in out.getvalue()


async def test_status_says_what_the_sentinel_did(desk: Desk) -> None:
    desk.sentinel = {
        "monitors": {"outcomes": {"previous_p": 0.2}},
        "told": [{"action": "freeze", "reason": "length x2"}],
    }
    status = (await desk.http.get("/api/status")).json()
    assert status["sentinel"]["monitors"]["outcomes"] == {"previous_p": 0.2}
    out = StringIO()
    show(status, screen(out))
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


@pytest.mark.parametrize("body", [b'{"x":' + b"[" * 100_000, b'{"reason": "\xff"}'])
async def test_a_body_that_is_nested_without_an_end_or_no_text_is_refused(desk: Desk, body: bytes) -> None:
    answer = await desk.http.post("/api/freeze", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
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
    assert "text/javascript" in (await desk.http.get("/app.js")).headers["content-type"]


async def version(desk: Desk, path: Path, number: int, decision: str = "promote") -> None:
    """A candidate on disk, with the gate's word on it unless that is empty."""
    made = candidate(number, path / f"v{number:06d}")
    await desk.store.save([made])
    if decision:
        verdict = Verdict(
            id=f"v{number}", version=number, path=made.path, manifest=made.manifest, incumbent=0, decision=decision,
            reason="measured", created=float(number),
        )  # fmt: skip
        await desk.store.save([sign(verdict, desk.key)])


async def order(desk: Desk, kind: str, **body: object) -> tuple[int, str]:
    answer = await desk.http.post(f"/api/{kind}", json=body)
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["error"]["message"]


async def test_an_order_to_promote_is_signed_and_names_the_weights(desk: Desk, tmp_path: Path) -> None:
    await version(desk, tmp_path, 3)
    assert await order(desk, "promote", version=3) == (200, "")
    (sent,) = desk.sent
    assert record_problem(sent, desk.keys) == ""
    assert (sent.kind, sent.details["version"], sent.details["verdict"]) == ("promote", "3", "promote")
    assert sent.details["path"] == str(tmp_path / "v000003")


@pytest.mark.parametrize("decision", ["reject", "hold", ""])
async def test_what_the_gate_did_not_promote_needs_force_and_force_a_reason(
    desk: Desk, tmp_path: Path, decision: str
) -> None:
    await version(desk, tmp_path, 3, decision)
    status, why = await order(desk, "promote", version=3)
    assert (status, "--force" in why, (decision or "not judged") in why) == (409, True, True)
    assert (await order(desk, "promote", version=3, force=True))[0] == 422
    assert desk.sent == []
    assert (await order(desk, "promote", version=3, force=True, reason="by eye"))[0] == 200
    assert (desk.sent[0].details["forced"], desk.sent[0].reason) == ("yes", "by eye")


async def test_a_forged_verdict_is_none(desk: Desk, tmp_path: Path) -> None:
    await version(desk, tmp_path, 3, "")
    made = (await desk.store.candidates())[0]
    forged = Verdict(
        id="f", version=3, path=made.path, manifest=made.manifest, incumbent=0, decision="promote", reason="",
        signature="ab" * 32,
    )  # fmt: skip
    await desk.store.save([forged])
    assert "not judged" in (await order(desk, "promote", version=3))[1]


async def test_an_unknown_version_is_told_what_there_is(desk: Desk, tmp_path: Path) -> None:
    assert "there are none yet" in (await order(desk, "promote", version=9))[1]
    for number in range(1, 16):
        await version(desk, tmp_path, number)
    status, why = await order(desk, "promote", version=99, force=True, reason="x")
    assert (status, "there are 15, 14, 13" in why, "and 3 older" in why) == (404, True, True)


async def test_a_version_whose_directory_is_gone_or_changed_is_not_promoted(desk: Desk, tmp_path: Path) -> None:
    await version(desk, tmp_path, 3)
    (tmp_path / "v000003" / "manifest.json").write_bytes(b"{}")
    assert "cannot be loaded" in (await order(desk, "promote", version=3, force=True, reason="x"))[1]


async def test_what_was_rolled_back_comes_back_by_force_alone(desk: Desk, tmp_path: Path) -> None:
    await version(desk, tmp_path, 3)
    desk.fleet = Fleet(stable=0, good=(0, 3), banned=(3,))
    assert "rolled back" in (await order(desk, "promote", version=3))[1]
    assert (await order(desk, "promote", version=3, force=True, reason="it was the network"))[0] == 200


async def test_a_rollback_goes_to_the_version_before_or_to_one_that_has_served(desk: Desk) -> None:
    desk.fleet = Fleet(stable=5, good=(0, 3, 4, 5), banned=(4,))
    assert (await order(desk, "rollback"))[0] == 422, "a reason is needed"
    assert (await order(desk, "rollback", reason="slow"))[0] == 200
    assert (await order(desk, "rollback", reason="slow", to=0))[0] == 200
    assert [(sent.details["version"], sent.details["to"]) for sent in desk.sent] == [("5", "3"), ("5", "0")]
    status, why = await order(desk, "rollback", reason="slow", to=4)
    assert (status, "3, 0" in why) == (404, True)


async def test_a_rollback_in_a_trial_ends_the_trial_and_one_further_back_all_of_it(desk: Desk) -> None:
    desk.fleet = Fleet(stable=5, good=(3, 5), canary=6, canary_engine="a")
    await order(desk, "rollback", reason="slow")
    await order(desk, "rollback", reason="slow", to=3)
    assert [(sent.details["version"], sent.details["to"]) for sent in desk.sent] == [("6", "5"), ("5", "3")]


async def test_with_nothing_to_go_back_to_a_rollback_is_refused(desk: Desk) -> None:
    desk.fleet = Fleet(stable=0, good=(0,))
    assert (await order(desk, "rollback", reason="x"))[0] == 409


async def test_the_kill_switch_stops_promotions_and_thaws_and_leaves_the_way_back_open(
    desk: Desk, tmp_path: Path
) -> None:
    await version(desk, tmp_path, 3)
    (tmp_path / "FREEZE").write_text("incident 4711\n")
    desk.fleet = Fleet(stable=5, good=(3, 5))
    for kind, body in (("promote", {"version": 3, "force": True, "reason": "x"}), ("thaw", {})):
        status, why = await order(desk, kind, **body)
        assert (status, "incident 4711" in why, "FREEZE" in why) == (409, True, True)
    assert (await order(desk, "rollback", reason="x"))[0] == 200
    assert (await desk.http.get("/api/status")).json()["kill_switch"] == "incident 4711"


async def test_while_frozen_nothing_is_promoted(desk: Desk, tmp_path: Path) -> None:
    await version(desk, tmp_path, 3)
    await order(desk, "freeze")
    assert "thaw" in (await order(desk, "promote", version=3))[1]


async def test_status_shows_each_engine(desk: Desk) -> None:
    view = EngineView(version=6, since=9.0, reachable=True, paused=True, canary_share=0.1, note="")
    away = EngineView(version=None, since=0.0, reachable=False, paused=False, canary_share=0.0, note="away")
    desk.fleet = Fleet(stable=5, canary=6, canary_engine="a", good=(3, 5), waiting=7, engines={"a": view, "b": away})
    out = StringIO()
    show((await desk.http.get("/api/status")).json(), screen(out))
    text = out.getvalue()
    assert all(part in text for part in ("v6", "10 % (canary)", "paused", "1970-01-01 00:00:09Z", "away"))
    assert "should serve: v5; v6 is on trial; v7 waits for its trial; one can go back to: v5, v3" in text


async def test_status_says_what_share_a_trial_has_and_until_when(desk: Desk) -> None:
    view = EngineView(version=6, since=9.0, reachable=True, paused=False, canary_share=0.2, note="")
    other = EngineView(version=5, since=9.0, reachable=True, paused=False, canary_share=0.0, note="")
    desk.fleet = Fleet(
        stable=5, canary=6, canary_engine="a", canary_runs=40, canary_judged=3, canary_against=31, canary_due=4,
        canary_grows=54_000.0, canary_grows_to=1 / 3, engines={"a": view, "b": other},
    )  # fmt: skip
    out = StringIO()
    show((await desk.http.get("/api/status")).json(), screen(out))
    assert "20 % (canary)" in out.getvalue()
    assert "on trial: 40 runs, 3 with an outcome; compared with 31, next at 4; 33.3 % from 15:00Z on" in out.getvalue()


async def test_a_trial_at_the_only_engine_has_all_there_is_and_no_share(desk: Desk) -> None:
    view = EngineView(version=6, since=9.0, reachable=True, paused=False, canary_share=1.0, note="")
    desk.fleet = Fleet(
        stable=5, canary=6, canary_engine="a", canary_runs=4, canary_judged=1, good=(3, 5), engines={"a": view}
    )
    out = StringIO()
    show((await desk.http.get("/api/status")).json(), screen(out))
    text = out.getvalue()
    assert all(part in text for part in ("v6", "all", "on trial: 4 runs, 1 with an outcome", "should serve: v5; v6 is"))
    assert "canary" not in text
    assert (await order(desk, "rollback", reason="slow"))[0] == 200
    assert (desk.sent[-1].details["version"], desk.sent[-1].details["to"]) == ("6", "5")


async def test_an_engine_that_nothing_was_loaded_into_serves_what_it_was_started_with(desk: Desk) -> None:
    view = EngineView(version=-1, since=9.0, reachable=True, paused=False, canary_share=0.0, note="")
    desk.fleet = Fleet(stable=0, good=(0,), engines={"a": view})
    out = StringIO()
    show((await desk.http.get("/api/status")).json(), screen(out))
    assert ("as it started" in out.getvalue(), "v-1" in out.getvalue()) == (True, False)
