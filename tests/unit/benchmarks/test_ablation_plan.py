"""The ablation's cells, their results file, and its summary."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.benchmarks.ablation import bases, plan, show
from tests.benchmarks.ablation.loop import Point, Ran, settings_of
from tests.benchmarks.ablation.plan import Arm, Cell, Experiment, Setup, cell_id, cells, experiments, read_setup
from tests.benchmarks.ablation.results import Results

HEADLINES = ("short", "long", "drift", "own step", "own step, short", "own step, drift")


def ran(*successes: float, every: int = 2, before: float | None = None) -> Ran:
    points = [Point(every * i, success, {"A": success}) for i, success in enumerate(successes)]
    return Ran(points=points, before=before, seconds=1.0, sampling=0.5, updating=0.4, measuring=0.1, counts={},
               means={}, code="c")  # fmt: skip


def by_name(name: str) -> Experiment:
    return next(experiment for experiment in experiments() if experiment.name == name)


def test_headlines_have_ten_seeds_over_three_warm_starts_and_the_others_five_but_for_step_credit() -> None:
    for experiment in experiments():
        seeds = {cell.seed for cell in cells(experiment)}
        if experiment.name == "step credit":
            assert seeds == {cell.warm for cell in cells(experiment)} == set(bases.WARM_STARTS)
            continue
        assert seeds == set(range(10 if experiment.name in HEADLINES else 5))
        assert {cell.warm for cell in cells(experiment)} == set(bases.TRAINED)


def test_seed_by_seed_every_arm_has_the_same_warm_start() -> None:
    for experiment in experiments():
        warm: dict[int, int] = {}
        for cell in cells(experiment):
            assert warm.setdefault(cell.seed, cell.warm) == cell.warm


def test_every_setup_is_one_that_the_learner_accepts() -> None:
    for experiment in experiments():
        for arm in experiment.arms:
            settings_of(arm.setup)


def test_a_setting_that_the_learner_does_not_have_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="no_such_setting"):
        settings_of(Setup(learner={"no_such_setting": 1}))


def test_no_two_arms_of_an_experiment_do_the_same() -> None:
    for experiment in experiments():
        ids = [cell_id(arm.setup, 0, 0) for arm in experiment.arms]
        assert len(set(ids)) == len(ids), experiment.name


def test_arms_that_do_the_same_in_two_experiments_share_their_cells() -> None:
    headline = {cell.id for cell in cells(by_name("own step"))}
    judges = [cell for cell in cells(by_name("judges")) if cell.arm in ("GRPO", "0 % wrong")]
    assert {cell.id for cell in judges} <= headline


def test_a_cell_is_known_by_what_it_does() -> None:
    setup = Setup(eta=0.5)
    assert cell_id(setup, 0, 1) == cell_id(Setup(eta=0.5), 0, 1)
    assert len({cell_id(setup, 0, 1), cell_id(setup, 1, 1), cell_id(setup, 0, 2), cell_id(Setup(), 0, 1)}) == 4


def test_a_finished_cell_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    results = Results(tmp_path / "deep" / "ablation.json")
    cell = cells(by_name("drift"))[4]
    results.add(cell, "b", ran(0.3, 0.9, before=0.95))
    (done,) = results.read().values()
    assert (done.id, done.base) == (cell.id, "b")
    assert (done.experiment, done.arm, done.warm, done.seed) == (cell.experiment, cell.arm, cell.warm, cell.seed)
    assert read_setup(done.setup) == cell.setup
    assert done.ran == ran(0.3, 0.9, before=0.95)


def test_cells_that_are_added_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "ablation.json"
    some = cells(by_name("long"))[:24]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda cell: Results(path).add(cell, "b", ran(0.1, 0.2)), some))
    assert set(Results(path).read()) == {(cell.id, "b") for cell in some}
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".part"] == []


def test_every_cell_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    results = Results(tmp_path / "ablation.json")
    for cell in cells(by_name("long"))[:3]:
        results.add(cell, "b", ran(0.1, 0.2))
    text = results.path.read_text(encoding="utf-8")
    assert sum('"setup"' in line for line in text.splitlines()) == 3
    assert json.loads(text)["name"] == "ablation"


def fill(results: Results, experiment: str, arm: str, seeds: int, *curves: Ran, base: str = "") -> None:
    for cell in cells(by_name(experiment)):
        if cell.arm == arm and cell.seed < seeds:
            results.add(cell, base, curves[cell.seed % len(curves)])


def test_figures_come_from_pairs_and_from_nothing_else(tmp_path: Path) -> None:
    results = Results(tmp_path / "ablation.json")
    fill(results, "long", show.GRPO, 4, ran(0.0, 0.4, 0.8, 0.9, 0.9))
    assert show.figures(experiments(), results.read()) == {}
    fill(results, "long", show.CREDIT, 3, ran(0.0, 0.8, 0.9, 0.9, 0.9))
    assert set(show.figures(experiments(), results.read())) == {
        "paper_seeds", "paper_credit_saving_long", "paper_credit_saving_long_low", "paper_credit_saving_long_high",
    }  # fmt: skip
    fill(results, "own step", show.OWN, 3, ran(0.0, 0.8, 0.9, 0.9, 0.9))
    figures = show.figures(experiments(), results.read())
    assert figures["seeds"] == 3
    assert 0 < figures["credit_saving_long_low"] <= figures["credit_saving_long"] < 1
    assert "drift_gain_16" not in figures


def test_runs_from_different_checkpoints_are_no_pair_and_the_lone_ones_are_run_again_where_they_can_be(
    tmp_path: Path,
) -> None:
    results = Results(tmp_path / "ablation.json")
    fill(results, "own step", show.GRPO, 3, ran(0.0, 0.4, 0.8, 0.9, 0.9), base="old")
    fill(results, "own step", show.OWN, 3, ran(0.0, 0.8, 0.9, 0.9, 0.9), base="new")
    assert show.figures(experiments(), results.read()) == {}
    fill(results, "own step", "own step (rules)", 3, ran(0.0, 0.8, 0.9, 0.9, 0.9), base="new")
    again = show.missing(by_name("own step"), results.read(), lambda cell: "new")
    assert [cell.arm for cell in again if cell.seed < 3] == [show.GRPO] * 3
    elsewhere = show.missing(by_name("own step"), results.read(), lambda cell: "another machine's")
    assert [cell for cell in elsewhere if cell.seed < 3] == []
    fill(results, "own step", show.GRPO, 3, ran(0.0, 0.4, 0.8, 0.9, 0.9), base="new")
    assert len(results.read()) == 12, "the others stay: other experiments may go with them"
    assert show.figures(experiments(), results.read())["seeds"] == 3


def test_the_gain_after_a_drift_is_read_at_update_16(tmp_path: Path) -> None:
    results = Results(tmp_path / "ablation.json")
    fill(results, "drift", show.GRPO, 2, ran(0.3, 0.3, 0.35, every=8, before=0.9))
    fill(results, "own step, drift", show.OWN, 2, ran(0.3, 0.5, 0.8, every=8, before=0.9))
    figures = show.figures(experiments(), results.read())
    assert figures["drift_gain_16"] == pytest.approx(0.45)
    assert figures["seeds_drift"] == 2


def test_curves_are_drawn_for_what_has_run_and_for_nothing_else(tmp_path: Path) -> None:
    results = Results(tmp_path / "ablation.json")
    fill(results, "long", show.GRPO, 2, ran(0.1, 0.9))
    assert show.curves(experiments(), results.read(), tmp_path) == []
    fill(results, "long", show.BOTH, 2, ran(0.2, 0.9))
    assert [path.name for path in show.curves(experiments(), results.read(), tmp_path)] == ["ablation-long.png"]
    assert (tmp_path / "ablation-long.png").read_bytes().startswith(b"\x89PNG")


def test_a_stopped_run_has_whole_pairs() -> None:
    """Cells come seed by seed, all arms of one before the next."""
    experiment = Experiment("e", "?", (Arm("a", Setup()), Arm("b", Setup(eta=0.5))), 3)
    assert [(cell.seed, cell.arm) for cell in cells(experiment)] == [
        (0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b"),
    ]  # fmt: skip
    assert isinstance(cells(experiment)[0], Cell)
    assert plan.WARM_STARTS == 3
