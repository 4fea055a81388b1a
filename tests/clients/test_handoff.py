"""Two agents of the OpenAI Agents SDK, unmodified, through the tap: one trajectory, two roles, one handoff."""

from pathlib import Path

import pytest

from actors.messages import steps_array
from tests.clients import rig
from tests.clients.catalogue import CHAT, RESPONSES, Client, runs
from tests.clients.engine.script import HANDOFF
from tests.clients.verdict import stitched
from tests.support.patience import within

pytestmark = pytest.mark.timeout(within(1200))
PROGRAM = "programs/openai_agents.py"
TEAMS = (
    Client(name="handoff responses", program=PROGRAM, endpoint=RESPONSES),
    Client(name="handoff chat", program=PROGRAM, endpoint=CHAT, env={"API": "chat"}),
)
RUNS = 3


def test_each_run_is_one_trajectory_of_two_roles_with_its_handoff(tmp_path: Path) -> None:
    mine = [run for team in TEAMS for run in runs(team, RUNS, (HANDOFF,))]
    with rig.scripted_engine(tmp_path / "engine.log") as engine, rig.tap(engine, tmp_path / "tap") as url:
        results = rig.work(TEAMS, mine, url, tmp_path / "clients")
        assert {(*answers, last) for answers, _, last in results.values()} == {("It is 5.", "Clerk")}
        truth = rig.given(engine)
        seen = rig.spooled(tmp_path / "tap", len(truth))
    found = [run for run, _ in stitched(seen).trajectories]
    assert len(found) == len(mine)
    assert len({step.role for run in found for step in run.steps}) == 2, "the same names in every run and dialect"
    for run in found:
        triage, *clerk = (step.role for step in run.steps)
        assert triage.startswith("triage-agent#")
        assert len(clerk) == 2
        assert len(set(clerk)) == 1
        assert clerk[0].startswith("clerk#")
        (handoff,) = run.handoffs
        assert (handoff.source, handoff.target, handoff.step) == (triage, clerk[0], 1)
        assert handoff.via == "transfer_to_clerk"
        by_row = [set(steps_array(row.step).tolist()) - {-1} for row in run.rows]
        assert by_row == [{0}, {1, 2}], "each role in its own rows"
