"""The ablation's own hand on the learner: sampling, labels, and the loop around the code that ships."""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from actors.messages import BatchItem, Estimate, StepLabel, Trajectory
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.drift import BASE, Variant
from daemon.demo.world import WARM_START
from learner.build import BuildSettings, build
from learner.credit import CreditSettings, assign
from learner.trainers.native import NativeTrainer
from tests.benchmarks.ablation.attempts import Attempt, attributed
from tests.benchmarks.ablation.labels import label
from tests.benchmarks.ablation.loop import Loop, Stopped, run, settings_of
from tests.benchmarks.ablation.plan import Setup
from tests.benchmarks.ablation.player import Player, Shape, Tokens, Weights, draw


@pytest.fixture(scope="module")
def player() -> Player:
    torch.set_num_threads(1)
    shape = msgspec.json.decode((WARM_START / "config.json").read_bytes(), type=Shape)
    return Player(Weights(WARM_START, shape), Tokenizer.from_file(str(WARM_START / "tokenizer.json")))


@pytest.fixture(scope="module")
def played(player: Player) -> list[tuple[Attempt, Tokens]]:
    """Groups of four on the short and the long desk, half of each guided, after a rename."""
    desk, variant = TravelDesk(), Variant.of(Drift(rename={"book": "buy"}))
    tasks = [desk.sample(number, "train", families) for families in ("ABC", "L") for number in range(2)]
    attempts = [Attempt(task, variant, guided=member < 2, group=task.id) for task in tasks for member in range(4)]
    return list(zip(attempts, player.play(attempts, torch.Generator().manual_seed(0)), strict=True))


def trajectories(player: Player, played: list[tuple[Attempt, Tokens]]) -> list[Trajectory]:
    return [attempt.trajectory(n, tokens, player, 0) for n, (attempt, tokens) in enumerate(played)]


def limits(trainer: NativeTrainer) -> BuildSettings:
    return BuildSettings(vocabulary=trainer.vocabulary, max_tokens=trainer.max_tokens, chain=(0,), newest=0,
                         max_staleness=4)  # fmt: skip


def test_recorded_log_probs_are_those_that_the_trainer_computes(
    player: Player, played: list[tuple[Attempt, Tokens]]
) -> None:
    unguided = [
        BatchItem(
            attributed=attributed(
                msgspec.structs.replace(t, group=""), [StepLabel(one) for one in attempt.truth], "oracle"
            ),
            estimate=Estimate(mean=0.5, variance=0.01, evidence=9.0, version=0),
        )
        for t, (attempt, _) in zip(trajectories(player, played), played, strict=True)
        if not attempt.guided
    ]
    trainer = NativeTrainer(settings_of(Setup()), WARM_START)
    built = build(unguided, assign(unguided, CreditSettings()), limits(trainer))
    assert built.batch is not None
    recorded = built.batch.behaviour[built.batch.mask.astype(bool)]
    assert len(recorded) > 100
    np.testing.assert_allclose(trainer.log_probs(built.batch), recorded, atol=2e-4)


def test_a_lesson_is_cut_out_so_that_the_plain_opening_is_left(
    player: Player, played: list[tuple[Attempt, Tokens]]
) -> None:
    for (attempt, tokens), trajectory in zip(played, trajectories(player, played), strict=True):
        start, end = trajectory.rows[0].hint
        assert (end > start) == attempt.guided
        rest = tokens.ids[:start] + tokens.ids[end:]
        plain = player.encode(attempt.plain)
        assert rest[: len(plain)] == plain


def test_a_row_says_what_the_conversation_said(player: Player, played: list[tuple[Attempt, Tokens]]) -> None:
    for (attempt, tokens), trajectory in zip(played, trajectories(player, played), strict=True):
        assert len(trajectory.steps) == len(attempt.truth) == max(tokens.steps) + 1
        assert len(tokens.ids) == len(tokens.steps) == len(tokens.logprobs)
        assert all(logprob == 0.0 for logprob, step in zip(tokens.logprobs, tokens.steps, strict=True) if step < 0)


def test_a_solved_attempt_ends_with_a_good_step_and_only_good_steps_lead_there(
    played: list[tuple[Attempt, Tokens]],
) -> None:
    solved = [attempt for attempt, _ in played if attempt.solved]
    assert solved
    for attempt in solved:
        assert attempt.truth[-1] == "GOOD"
    assert any("BAD" in attempt.truth for attempt, _ in played if not attempt.solved)


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.0, 0.2])).expand(20_000, 4)
    ids, logprobs = draw(logits, torch.Generator().manual_seed(0))
    shares = np.bincount(ids, minlength=4) / len(ids)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.0, 0.2], atol=0.015)
    assert logprobs[0] == pytest.approx(float(logits[0, ids[0]]))


def test_the_same_seed_plays_the_same(player: Player) -> None:
    task = TravelDesk().sample(5, "train", "ABC")
    runs = [player.play([Attempt(task, BASE) for _ in range(6)], torch.Generator().manual_seed(3)) for _ in range(2)]
    assert [one.ids for one in runs[0]] == [one.ids for one in runs[1]]


def test_wrong_labels_are_turned_round_and_silent_ones_abstain(
    player: Player, played: list[tuple[Attempt, Tokens]]
) -> None:
    attempt, _ = played[0]
    trajectory = trajectories(player, played)[0]
    right = [StepLabel(one) for one in attempt.truth]
    rng = random.Random(0)
    assert list(label("oracle", trajectory, attempt.truth, rng, wrong=0.0, silent=0.0)) == right
    turned = label("oracle", trajectory, attempt.truth, rng, wrong=1.0, silent=0.0)
    assert all(one.label != other.label and one.label != "ABSTAIN" for one, other in zip(turned, right, strict=True))
    silent = label("oracle", trajectory, attempt.truth, rng, wrong=0.3, silent=1.0)
    assert {one.label for one in silent} == {"ABSTAIN"}


def test_the_rules_judge_does_not_see_the_answer_key(player: Player, played: list[tuple[Attempt, Tokens]]) -> None:
    attempt, _ = played[0]
    trajectory = trajectories(player, played)[0]
    lies = ["BAD" if one == "GOOD" else "GOOD" for one in attempt.truth]
    told = [
        label("rules", trajectory, truth, random.Random(0), wrong=0.0, silent=0.0) for truth in (attempt.truth, lies)
    ]
    assert told[0] == told[1]


def test_a_judge_that_always_abstains_is_grpo(player: Player, played: list[tuple[Attempt, Tokens]]) -> None:
    ts = trajectories(player, played)
    abstained, judged = (
        [
            BatchItem(
                attributed=attributed(t, label(source, t, attempt.truth, random.Random(0), wrong=0, silent=0), "")
            )
            for t, (attempt, _) in zip(ts, played, strict=True)
        ]
        for source in ("none", "oracle")
    )
    with_alpha = assign(abstained, CreditSettings(alpha=0.1)).advantages
    grpo = assign(judged, CreditSettings(alpha=0.0)).advantages
    assert any(one is not None for one in grpo)
    for one, other in zip(with_alpha, grpo, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            np.testing.assert_array_equal(one, other)


TINY = Setup(families="B", evaluated="B", updates=2, groups=2, group_size=4, eval_tasks=8)


def test_a_cell_gives_the_same_result_every_time_and_says_what_it_cost() -> None:
    seen: list[float] = []
    first, second = (run(TINY, WARM_START, 1, progress=lambda now: seen.append(now.seconds)) for _ in range(2))
    assert first.points == second.points
    assert first.means == second.means
    assert [point.update for point in first.points] == [0, 1, 2]
    assert first.means["tokens"] > 0
    assert seen[:2] == sorted(seen[:2])
    assert seen[0] > 0


def test_a_lagging_policy_samples_with_older_weights(tmp_path: Path) -> None:
    loop = Loop(msgspec.structs.replace(TINY, lag=1, families="ABC"), WARM_START, 1, tmp_path)
    found: list[int] = []
    for _ in range(3):
        found.append(loop.sampling_version)
        loop.update()
    assert found == [0, 0, 1]


def test_a_cell_that_is_stopped_gives_nothing() -> None:
    with pytest.raises(Stopped):
        run(TINY, WARM_START, 1, progress=lambda _: None, stop=lambda: True)
