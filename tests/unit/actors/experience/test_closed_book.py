"""Does the model know a lesson without seeing it? The books on trials, and what follows from them after a swap."""

from typing import Any

import pytest

from actors.experience import lesson_ab_test
from actors.experience.pool import LessonPool
from actors.experience.reviewing import Reviewing
from actors.messages import Experience, Serving
from tests.unit.actors.experience.made import rollout

LESSON = Experience(
    id="l", when_to_use="book", content="search then book:book", state="active", revision=0, updated=10.0
)


@pytest.fixture(autouse=True)
def trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rollouts close the book, and nothing else retires a lesson."""
    monkeypatch.setattr(lesson_ab_test, "CLOSED_BOOK_TRIALS", 16)
    monkeypatch.setattr(lesson_ab_test, "RETIRE_TRIALS", 400)


class Books:
    """A review of one lesson, with a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pool = LessonPool(100)
        self.pool.load([LESSON])
        self.reviewing = Reviewing(pool=self.pool, memory=4096, between=0.0, clock=lambda: self.now)
        self.number = 0

    def swap(self, version: int, **fields: Any) -> None:
        told = {"previous": 0, "result": "swapped", **fields}
        self.reviewing.swapped(
            Serving(id=f"s{self.number}", engine="e", version=version, path="", since=self.now, **told)
        )

    def play(self, version: int, *, guided: tuple[int, int] = (0, 0), unguided: tuple[int, int] = (0, 0)) -> None:
        """(tried, succeeded) rollouts by `version`; then the review."""
        self.now += 10.0
        for side, ids in ((guided, ("l",)), (unguided, ())):
            for number in range(side[0]):
                self.number += 1
                outcome = float(number < side[1])
                self.reviewing.remember(rollout(f"r{self.number}", "Book a flight.", self.now, outcome, ids, version))
        self.reviewing.review()
        self.pool.revised(self.now)

    @property
    def lesson(self) -> Experience:
        return self.pool.get("l")


ALWAYS = (40, 40)


@pytest.mark.parametrize(
    ("swapped", "guided", "unguided"),
    [
        (0, ALWAYS, ALWAYS),  # no swap
        (3, ALWAYS, ALWAYS),  # rollouts of older weights
        (2, (15, 15), ALWAYS),
        (2, ALWAYS, (15, 15)),
        (2, ALWAYS, (40, 30)),
        (2, (40, 2), (40, 2)),
        (2, (20, 20), (20, 18)),
    ],
)
def test_older_weights_too_few_trials_or_too_little_success_are_no_knowledge(
    swapped: int, guided: tuple[int, int], unguided: tuple[int, int]
):
    books = Books()
    if swapped:
        books.swap(swapped)
    books.play(2, guided=guided, unguided=unguided)
    assert books.lesson.state == "active"


@pytest.fixture
def knowing() -> Books:
    """After a swap whose weights know the lesson."""
    books = Books()
    books.play(1, guided=(40, 39), unguided=(40, 2))
    books.swap(2)
    books.play(2, guided=(40, 40), unguided=(40, 40))
    assert (books.lesson.state, books.lesson.reason) == ("retired", "internalised")
    assert (books.lesson.guided, books.lesson.unguided) == ((40, 40), (40, 40)), "the new weights' trials alone"
    assert books.pool.counts["internalised"] == 1
    return books


def test_an_internalised_lesson_comes_back_as_a_candidate_when_unguided_success_falls(knowing: Books):
    knowing.play(3, unguided=(24, 23))
    assert knowing.lesson.state == "retired", "one failure is none"
    knowing.play(4, unguided=(40, 12))
    assert (knowing.lesson.state, knowing.lesson.reason) == ("candidate", "unlearnt: unguided success fell")
    assert (knowing.lesson.guided, knowing.pool.counts["unlearnt"]) == ((0, 0), 1)


def test_it_comes_back_when_the_weights_that_knew_it_are_rolled_back(knowing: Books):
    knowing.swap(2, result="rolled_back", previous=1)
    assert (knowing.lesson.state, knowing.lesson.reason) == ("candidate", "the weights that knew it are gone")


def test_it_does_not_come_back_where_another_lesson_has_taken_its_place(knowing: Books):
    knowing.pool.put(
        Experience(id="m", when_to_use="book", content="search then book:buy", state="active", kind="rename")
    )
    knowing.play(4, unguided=(40, 0))
    assert knowing.lesson.state == "retired"
