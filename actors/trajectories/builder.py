"""The trajectory of a closing: steps with what came back, and token rows for the trainer.

Pure: the same closing gives the same trajectory in every process, its id included; that makes closing idempotent.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Feedback, Step, TokenRow, Trajectory, continues, derived_id, extended, ids_array
from actors.store import Joined
from actors.trajectories.link_keys import meant, named
from actors.trajectories.parsed_exchange import Answer, ParsedExchange
from actors.trajectories.roles import handoffs, roles_of
from actors.trajectories.side_calls import main_line
from actors.trajectories.stitching import Closing

MOSTLY_MASKED = "redacted too much"
MOST_MASKED = 0.5
"""Share of a run's sampled tokens that may be masked. Beyond it more of what the model did is gone than is left, and
the outcome is hardly that of the rest."""
Turns = Sequence[ParsedExchange]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory, and what is beside it."""

    run: Trajectory
    turns: Turns
    beside: Turns
    """Calls off its main line: titles, summaries, retries. They are kept, and no step of anything."""
    joined: Sequence[Joined]
    """What was said of it. Who names a call beside it alone, rating a title, does not rate the work; who names the
    trajectory means its main line."""


def build(closing: Closing) -> Built:
    """The trajectory of `closing`: its main line."""
    turns = main_line(closing.turns)
    main = {turn.id for turn in turns}
    beside = [turn for turn in closing.turns if turn.id not in main]
    own, others = ({key for turn in some for key in named(turn)} for some in (turns, beside))
    aside = {said.id for said in closing.feedback if others.intersection(meant(said)) and own.isdisjoint(meant(said))}
    run = _run(closing, turns, [said for said in closing.feedback if said.id not in aside])
    joined = [
        Joined(id=said.id, trajectory_id=run.id, outcome=None if said.id in aside else run.outcome)
        for said in closing.feedback
    ]
    return Built(run=run, turns=turns, beside=beside, joined=joined)


def _run(closing: Closing, turns: Turns, feedback: Sequence[Feedback]) -> Trajectory:
    first, roles = turns[0], roles_of(turns)
    rows, where = _rows(turns, roles)
    taught = [turn for turn in turns if not turn.why_not]
    why_not = _too_much(taught) if taught else first.why_not
    answers = [_answer(turns, number) for number in range(len(turns))]
    steps = tuple(
        Step(
            exchange_id=turn.id,
            response_id=turn.response_id,
            text=answers[number].text,
            tool_calls=answers[number].calls,
            observation=_observation(turns, roles, number, answers[number]),
            row=where[number],
            role=roles[number],
            cut="length" if answers[number].cut else "",
            why_not=turn.why_not or why_not,
        )
        for number, turn in enumerate(turns)
    )
    versions = np.concatenate([_versions(turn) for turn in turns])
    return Trajectory(
        id=derived_id("trajectory", first.tenant, first.explicit, first.id),
        source="production",
        tenant=first.tenant,
        caller=first.caller,
        goal=first.goal,
        tools=turns[-1].tools,
        steps=steps,
        rows=rows,
        outcome=outcome_of(feedback),
        closed_by=closing.closed_by,
        started=first.started,
        ended=max(turn.ended for turn in turns),
        trainable=not why_not,
        why_not=why_not,
        confidence=min((closing.links[turn.id].confidence for turn in turns if turn.id in closing.links), default=1.0),
        min_version=int(versions.min()) if versions.size else -1,
        max_version=int(versions.max()) if versions.size else -1,
        continues=closing.continues,
        resumed_with=first.observation if closing.continues and not first.results else "",
        handoffs=handoffs(turns, roles),
    )


def _versions(turn: ParsedExchange) -> npt.NDArray[np.int32]:
    """Weights that the run is of: those known of a call that is not trained on too, as whoever compares versions asks
    who served all of it; that they are not known keeps nobody else out."""
    versions = ids_array(turn.tokens.versions)
    return versions[versions >= 0] if turn.why_not else versions


def _too_much(turns: Turns) -> str:
    """Why a run is not trained on whose answers are mostly placeholders; empty if they are not."""
    masked = sum(turn.tokens.masked for turn in turns)
    left = sum(len(turn.tokens.response_ids) // 4 - sum(turn.tokens.stand_in) for turn in turns)
    return MOSTLY_MASKED if masked > MOST_MASKED * (masked + left) else ""


def outcome_of(feedback: Sequence[Feedback]) -> float | None:
    """What feedback says of the whole: the last final outcome, else the last rating; None if nobody said.

    What is about one step alone says nothing of the whole.
    """
    told = [f for f in feedback if f.outcome is not None and f.whole]
    best = max(told, key=lambda f: (f.final and f.kind == "outcome", f.final, f.received, f.id), default=None)
    return None if best is None else best.outcome


def _answer(turns: Turns, number: int) -> Answer:
    """What the model said: of several choices the one that the agent went on with, of a mirrored call its echo."""
    turn = turns[number]
    later = turns[number + 1] if number + 1 < len(turns) else None
    if later is not None and later.echo is not None and later.depth == turn.depth + 1:
        return later.echo
    if later is not None and len(turn.answers) > 1:
        known = set(later.answered)
        for answer in turn.answers:
            if answer.future == later.history or any(call.id in known for call in answer.calls if call.id):
                return answer
    return turn.answers[0] if turn.answers else Answer("assistant")


def _observation(turns: Turns, roles: Sequence[str], number: int, answer: Answer) -> str:
    calls = {call.id for call in answer.calls if call.id}
    for later in turns[number + 1 :]:
        if calls.intersection(later.answered):
            return later.observation
    following = turns[number + 1 :]
    if following and roles[number] == roles[number + 1]:
        return following[0].observation
    # Another agent's conversation: what it is told is no answer to this one.
    return next((later.observation for later in following if _follows(later, answer)), "")


def _follows(turn: ParsedExchange, answer: Answer) -> bool:
    """Whether `turn` goes on after `answer`, under whatever system prompt."""
    return bool(answer.future) and (turn.history == answer.future or turn.outline == answer.outline)


def _rows(turns: Turns, roles: Sequence[str]) -> tuple[tuple[TokenRow, ...], list[int]]:
    """The rows, and the row of each turn (-1 without tokens).

    Each role has rows of its own: a planner's row goes on where a worker has come back to it. A call that must not be
    trained on is in none: where the next one's prompt has its tokens, they are context of that one.
    """
    rows: list[TokenRow] = []
    where: list[int] = []
    newest: dict[str, int] = {}
    for number, (turn, role) in enumerate(zip(turns, roles, strict=True)):
        tokens = turn.tokens
        if turn.why_not or not tokens.response_ids:
            where.append(-1)
            continue
        row = rows[newest[role]] if role in newest else None
        # A row is redacted or is not: what was sampled before the first find keeps its recorded log-probs.
        kind = turn.sampling.temperature, turn.sampling.processing, tokens.redacted
        same = row is not None and (row.temperature, row.processing, row.redacted) == kind
        if row is None or not same or not continues(row, tokens.prompt_ids):
            row = TokenRow(temperature=kind[0], processing=kind[1], redacted=kind[2])
            newest[role] = len(rows)
            rows.append(row)
        rows[newest[role]] = extended(row, number, tokens)
        where.append(newest[role])
    return tuple(rows), where
