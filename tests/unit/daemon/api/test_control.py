"""The control API tells what the store knows, and takes orders only from someone who means it."""

from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter

from actors.deployment.fleet import EngineView, Fleet
from actors.messages import Candidate, Verdict
from actors.messages.signing import record_problem, sign
from actors.store import Store
from daemon.cli.output import screen
from daemon.cli.status import show
from tests.support.credited import attributed
from tests.support.experience import Desk
from tests.support.fakes import candidate

pytestmark = pytest.mark.anyio


class Controls(Desk):
    """A control API over a fresh store, with what it was ordered."""

    def __init__(self, store: Store, state: Path) -> None:
        self.now, self.sentinel = 50.0, dict[str, object]()
        super().__init__(
            store, state, lambda: self.now, describe={"sandbox": "travel"},
            sentinel=lambda: self.sentinel,
        )  # fmt: skip
        self.client = self.http()

    async def status(self) -> tuple[dict[str, Any], str]:
        """As JSON, and as `evolved status` prints it."""
        told, out = (await self.client.get("/api/status")).json(), StringIO()
        show(told, screen(out))
        return told, out.getvalue()

    async def order(self, kind: str, **body: object) -> tuple[int, str]:
        answer = await self.client.post(f"/api/{kind}", json=body)
        return answer.status_code, "" if answer.status_code == 200 else answer.json()["error"]["message"]

    async def version(self, path: Path, number: int, decision: str = "promote") -> None:
        """A candidate on disk, with the gate's word on it unless that is empty."""
        made = candidate(number, path / f"v{number:06d}")
        await self.store.save([made])
        if decision:
            verdict = Verdict(
                id=f"v{number}", version=number, path=made.path, manifest=made.manifest, incumbent=0,
                decision=decision, reason="measured", created=float(number),
            )  # fmt: skip
            await self.store.save([sign(verdict, self.key)])


@pytest.fixture
async def desk(store: Store, tmp_path: Path) -> AsyncIterator[Controls]:
    desk = Controls(store, tmp_path)
    async with desk.client:
        yield desk


async def test_status_says_how_many_parties_have_evidence_and_whether_the_rule_binds(desk: Controls) -> None:
    async def told(keys: str) -> tuple[int, bool, str]:
        for place, key in enumerate(keys):
            for item in (attributed(f"{key}{number}", caller=key) for number in range(4)):
                # As it is kept before it is attributed, and after.
                await desk.store.save([item.trajectory if place % 2 else item])
        desk.now += 60.0
        status, shown = await desk.status()
        assert status["parties"]["sentence"] in shown
        return tuple(status["parties"].values())

    assert await told("") == (0, False, "0 with evidence; the caps bind from 4 on")
    assert await told("a") == (1, False, "1 with evidence; its word decides; the caps bind from 4 on")
    assert (await told("b"))[2] == "2 with evidence; the caps bind from 4 on, so one party's word can decide"
    assert await told("cdef") == (6, True, "6 with evidence; none weighs more than a third")


async def test_status_says_what_the_sentinel_did(desk: Controls) -> None:
    desk.sentinel = {"monitors": {"outcomes": {"p": 0.2}}, "told": [{"action": "freeze", "reason": "length x2"}]}
    status, shown = await desk.status()
    assert status["sentinel"]["monitors"]["outcomes"] == {"p": 0.2}
    assert "freeze: length x2" in shown


async def test_freeze_and_thaw_send_a_directive_with_its_reason(desk: Controls) -> None:
    assert await desk.order("freeze", reason="incident") == await desk.order("thaw") == (200, "")
    assert [(d.kind, d.reason, d.origin) for d in desk.ordered] == [
        ("freeze", "incident", "control"), ("thaw", "by hand", "control"),
    ]  # fmt: skip


async def test_another_host_is_not_answered_an_unknown_letter_is_404_and_metrics_are_text(desk: Controls) -> None:
    assert (await desk.client.get("/api/status", headers={"host": "evil.example"})).status_code == 400
    letters = [(await desk.client.post(f"/api/dead/{key}/retry")).status_code for key in ("known", "other")]
    assert (letters, desk.retried) == ([200, 404], ["known", "other"])
    Counter("evolved_test", "A count.", registry=desk.registry).inc()
    assert "evolved_test_total 1.0" in (await desk.client.get("/metrics")).text


async def test_an_order_to_promote_is_signed_and_names_the_weights(desk: Controls, tmp_path: Path) -> None:
    await desk.version(tmp_path, 3)
    assert await desk.order("promote", version=3) == (200, "")
    (sent,) = desk.ordered
    assert record_problem(sent, desk.keys) == ""
    assert (sent.kind, sent.details["version"], sent.details["verdict"]) == ("promote", "3", "promote")
    assert sent.details["path"] == str(tmp_path / "v000003")


@pytest.mark.parametrize("decision", ["reject", "hold", "", "forged"])
async def test_what_the_gate_did_not_promote_needs_force_and_force_a_reason(
    desk: Controls, tmp_path: Path, decision: str
) -> None:
    await desk.version(tmp_path, 3, decision.removeprefix("forged"))
    if decision == "forged":
        made = (await desk.store.newest(Candidate))[0]
        forged = Verdict(
            id="f", version=3, path=made.path, manifest=made.manifest, incumbent=0, decision="promote", reason="",
            signature="ab" * 32,
        )  # fmt: skip
        await desk.store.save([forged])
    said = decision if decision in ("reject", "hold") else "not judged"
    status, why = await desk.order("promote", version=3)
    assert (status, "--force" in why, said in why) == (409, True, True)
    assert (await desk.order("promote", version=3, force=True))[0] == 422
    assert desk.ordered == []
    assert (await desk.order("promote", version=3, force=True, reason="by eye"))[0] == 200
    assert (desk.ordered[0].details["forced"], desk.ordered[0].reason) == ("yes", "by eye")


async def test_an_unknown_version_is_told_what_there_is(desk: Controls, tmp_path: Path) -> None:
    assert "there are none yet" in (await desk.order("promote", version=9))[1]
    for number in range(1, 16):
        await desk.version(tmp_path, number)
    status, why = await desk.order("promote", version=99, force=True, reason="x")
    assert (status, "there are 15, 14, 13" in why, "and 3 older" in why) == (404, True, True)


async def test_what_is_changed_frozen_or_was_rolled_back_is_not_promoted(desk: Controls, tmp_path: Path) -> None:
    await desk.version(tmp_path, 3)
    desk.fleet = Fleet(stable=0, good=(0, 3), banned=(3,))
    assert "rolled back" in (await desk.order("promote", version=3))[1]
    assert (await desk.order("promote", version=3, force=True, reason="it was the network"))[0] == 200
    (tmp_path / "v000003" / "manifest.json").write_bytes(b"{}")
    assert "cannot be loaded" in (await desk.order("promote", version=3, force=True, reason="x"))[1]
    await desk.order("freeze")
    assert "thaw" in (await desk.order("promote", version=3))[1]


@pytest.mark.parametrize(
    ("fleet", "to", "came"),
    [
        (Fleet(stable=5, good=(0, 3, 4, 5), banned=(4,)), None, ("5", "3")),
        (Fleet(stable=5, good=(0, 3, 4, 5), banned=(4,)), 0, ("5", "0")),
        (Fleet(stable=5, good=(0, 3, 4, 5), banned=(4,)), 4, (404, "3, 0")),
        (Fleet(stable=5, good=(3, 5), canary=6, canary_engine="a"), None, ("6", "5")),
        (Fleet(stable=5, good=(3, 5), canary=6, canary_engine="a"), 3, ("5", "3")),
        (Fleet(stable=0, good=(0,)), None, (409, "")),
    ],
    ids=["before", "further back", "banned", "a trial", "beyond a trial", "nothing to go back to"],
)
async def test_a_rollback_ends_a_trial_or_goes_to_what_has_served(
    desk: Controls, fleet: Fleet, to: int | None, came: tuple[Any, str]
) -> None:
    desk.fleet = fleet
    assert (await desk.order("rollback"))[0] == 422, "a reason is needed"
    assert (await desk.order("rollback", reason="x" * (1 << 20)))[0] == 413
    status, why = await desk.order("rollback", reason="slow", **({} if to is None else {"to": to}))
    if status == 200:
        assert (desk.ordered[0].details["version"], desk.ordered[0].details["to"]) == came
    else:
        assert (status, desk.ordered) == (came[0], [])
        assert came[1] in why


async def test_the_kill_switch_stops_promotions_and_thaws_and_leaves_the_way_back_open(
    desk: Controls, tmp_path: Path
) -> None:
    await desk.version(tmp_path, 3)
    (tmp_path / "FREEZE").write_text("incident 4711\n")
    desk.fleet = Fleet(stable=5, good=(3, 5))
    for kind, body in (("promote", {"version": 3, "force": True, "reason": "x"}), ("thaw", {})):
        status, why = await desk.order(kind, **body)
        assert (status, "incident 4711" in why, "FREEZE" in why) == (409, True, True)
    assert (await desk.order("rollback", reason="x"))[0] == 200
    assert (await desk.status())[0]["kill_switch"] == "incident 4711"


def engine(version: int | None, **fields: Any) -> EngineView:
    values = {"since": 9.0, "reachable": True, "paused": False, "canary_share": 0.0, "note": ""}
    return EngineView(version=version, **{**values, **fields})


ON_TRIAL = {"stable": 5, "canary": 6, "canary_engine": "a", "good": (3, 5)}
AWAY = engine(None, since=0.0, reachable=False, note="away")


@pytest.mark.parametrize(
    ("fleet", "words", "never"),
    [
        (
            Fleet(**ON_TRIAL, waiting=7, engines={"a": engine(6, paused=True, canary_share=0.1), "b": AWAY}),
            ("v6", "10 % (canary)", "paused", "1970-01-01 00:00:09Z", "away",
             "should serve: v5; v6 is on trial; v7 waits for its trial; one can go back to: v5, v3"), "as it started",
        ),
        (
            Fleet(
                **ON_TRIAL, canary_runs=40, canary_judged=3, canary_against=31, canary_due=4,
                engines={"a": engine(6, canary_share=0.2), "b": engine(5)},
            ),
            ("20 % (canary)", "on trial: 40 runs, 3 with an outcome; compared with 31, next at 4"),
            "as it started",
        ),
        (
            Fleet(**ON_TRIAL, canary_runs=4, canary_judged=1, engines={"a": engine(6, canary_share=1.0)}),
            ("v6", "all", "on trial: 4 runs, 1 with an outcome", "should serve: v5; v6 is"), "canary",
        ),
        (Fleet(stable=0, good=(0,), engines={"a": engine(-1)}), ("as it started",), "v-1"),
    ],
    ids=["a trial, a pause and one away", "a share of a fifth", "the only engine", "nothing was loaded"],
)  # fmt: skip
async def test_status_shows_each_engine(desk: Controls, fleet: Fleet, words: tuple[str, ...], never: str) -> None:
    desk.fleet = fleet
    _, shown = await desk.status()
    for word in words:
        assert word in shown
    assert never not in shown
