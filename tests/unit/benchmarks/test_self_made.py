"""The benchmark's own verifier says what the environment's does."""

import pytest

from actors.ports.reference_calls import SyntheticTaskSpec
from adapters.environments.travel.drift import BASE
from tests.benchmarks.self_made import SelfMadeAttempt, generated, reached
from tests.warmstart import chat


@pytest.mark.parametrize("skipped", [None, 0, -1])
def test_an_attempt_is_good_if_it_reaches_the_state_of_the_reference(skipped: int | None):
    for task in generated(0, 6).tasks:
        spec = SyntheticTaskSpec.of(task)
        assert spec is not None
        attempt = SelfMadeAttempt(task, reached(task), BASE, group="")
        assert task.goal in attempt.opening
        calls = [
            call for at, call in enumerate(spec.reference) if skipped is None or at != skipped % len(spec.reference)
        ]
        for call in calls:
            attempt.act(chat.action(call.call()))
        assert attempt.solved == (skipped is None)
