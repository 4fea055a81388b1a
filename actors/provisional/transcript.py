"""A run as signals and the model read it: bounded texts, and how its calls went. Pure, and bounded whatever comes."""

import re
from math import sqrt

import msgspec

from actors.messages import Trajectory, agent_of
from actors.ports.parsed_calls import offered
from actors.ports.tool_answers.reader import failed
from actors.provisional.phrases import cut
from actors.statistics.parties import party_of
from actors.tool_results.runs import asks, invalid

STEPS = 24
"""Last steps that are read: how a run ended stands there."""
GOAL = 1_000
"""Characters of the goal."""
_ANSWER = 20_000
"""Characters of a tool's answer that its reader is given: what tells a failure stands at the ends."""
_TOOLS = 1 << 18
"""Bytes of a tool list that calls are held against; above it none is called invalid."""
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[⺀-鿿가-힯฀-๿]")
_WORDS = 64
"""Distinct words of a text."""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a run."""

    id: str
    tenant: str
    party: str
    agent: str
    goal: str
    turns: tuple[str, ...]
    """What the user said after answers, oldest first, in lower case."""
    resumed: str
    """What the user said to go on with a run that had closed; empty if it begins anew."""
    continues: str
    answer: str
    """The model's last words."""
    calls: tuple[tuple[str, str], ...]
    """Tool and verdict of each call: ok, failed, or unknown where nothing was answered."""
    repeated: int
    """Calls that were made before, to the letter."""
    steps: int
    errors: int
    invalid: int
    asked: bool
    """It ended in a question to the user."""
    cut: bool
    """It ended at a limit."""
    version: int
    started: float
    ended: float
    words: frozenset[str] = frozenset()
    """Of the goal (`telling`): it is held against those of many runs."""
    names: frozenset[str] = frozenset()
    """Those with a digit in them: orders, accounts, dates."""


def transcript(run: Trajectory) -> Transcript:
    """`run` in brief."""
    steps = run.steps[-STEPS:]
    tools = offered(run.tools) if len(run.tools) <= _TOOLS else {}
    calls: list[tuple[str, str]] = []
    turns: list[str] = []
    made: set[tuple[str, str]] = set()
    repeated = errors = 0
    for step in steps:
        if not step.tool_calls:
            if step.observation:
                turns.append(cut(step.observation))
            continue
        bad = failed(_ends(step.observation))
        errors += bad
        verdict = "failed" if bad else "ok" if step.observation.strip() else "unknown"
        for call in step.tool_calls[:STEPS]:
            key = (call.name[:64], call.arguments[:_ANSWER])
            repeated += key in made
            made.add(key)
            calls.append((call.name[:64], verdict))
    last, goal = steps[-1] if steps else None, run.goal[:GOAL].lower()
    said = telling(goal)
    return Transcript(
        id=run.id, tenant=run.tenant, party=party_of(run.tenant, run.caller), agent=agent_of(run),
        goal=goal, turns=tuple(turns), resumed=cut(run.resumed_with), continues=run.continues,
        answer=cut(last.text) if last else "", calls=tuple(calls[-STEPS:]), repeated=repeated, steps=len(run.steps),
        errors=errors, invalid=sum(invalid(step, tools) for step in steps) if tools else 0,
        asked=bool(last) and asks(last), cut=bool(last and last.cut) or run.closed_by == "limit",
        version=run.max_version, started=run.started, ended=run.ended,
        words=said, names=frozenset(filter(_number, said)),
    )  # fmt: skip


def _ends(answer: str) -> str:
    return answer if len(answer) <= _ANSWER else f"{answer[: _ANSWER // 2]}\n{answer[-_ANSWER // 2 :]}"


def words(text: str) -> list[str]:
    """Distinct words of `text`, in their order; pairs of letters where a script puts no blanks between words."""
    found: dict[str, None] = {}
    for word in _WORD.findall(text):
        pairs = [word[at : at + 2] for at in range(len(word) - 1)] if _UNSPACED.search(word) else [word[:24]]
        found.update(dict.fromkeys(pairs))
        if len(found) >= _WORDS:
            break
    return list(found)[:_WORDS]


def telling(text: str) -> frozenset[str]:
    """Words of `text` but those of three letters or less: they are in every sentence."""
    return frozenset(word for word in words(text) if len(word) > 3 or not word.isascii() or _number(word))


def alike(a: frozenset[str], b: frozenset[str]) -> float:
    """Cosine of the words of two texts."""
    return len(a & b) / sqrt(len(a) * len(b)) if a and b else 0.0


def _number(word: str) -> bool:
    return any(letter.isdigit() for letter in word)
