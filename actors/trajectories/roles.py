"""Who speaks in a session of several agents: roles told apart by system prompt and tool set, and the handoffs.

    turns of a trajectory -> `roles_of` -> one name a turn -> `handoffs` -> (from, to, at step, by which tool)

A role has the name that its calls' address gives it (`/agents/NAME/v1`). Without one it is a label for people and a
digest of what the role was told: the same agent has the same name in every session. Prompts and tool sets also change
while an agent works (the time of day, a lesson, tools that are brought on request), and that must not make another
agent of it: numbers do not count, the name goes by the prompt's beginning, and tools are compared only where prompts
do not decide. Pure.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from actors.dialects import digest
from actors.messages import Handoff
from actors.ports.parsed_calls import offered
from actors.trajectories.parsed_exchange import ParsedExchange

_HEAD = 400
"""Characters of a prompt that name its role: what changes from call to call stands behind what does not."""
_ALIKE = 0.8
"""Share of words that two prompts with the same tools have in common if they are one, filled in differently."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_PREFACE = re.compile(r"# System context\nYou are part of a multi-agent system called the Agents SDK.*?(?:\n|\Z)")
"""What the OpenAI Agents SDK recommends to write before the instructions of every agent that can hand off."""
_CALLED = re.compile(
    r"\b(?:you are|you're|your role is|act as|role:|name:)\s+(?:now\s+)?(?:an?\s+|the\s+|our\s+)?"
    r"([A-Za-z][\w-]*(?:[ \t][A-Za-z][\w-]*){0,3})",
    re.IGNORECASE,
)
_END = re.compile(r"an?|and|at|by|called|for|from|in|named|of|on|or|responsible|that|the|to|which|who|whose|with")


class _Voice(msgspec.Struct, frozen=True):
    """What tells the role of a turn."""

    agent: str
    text: str
    """The part of the prompt that states the role."""
    tools: frozenset[str]


def roles_of(turns: Sequence[ParsedExchange]) -> list[str]:
    """The role of each turn, such as `planner#1f0c2a9b`; empty for one without name, system prompt and tools.

    Args:
        turns: of one trajectory, by start.
    """
    offers = {tools: frozenset(offered(tools)) for tools in {turn.tools for turn in turns}}
    voices = [_Voice(turn.hints.agent, _plain(turn.system), offers[turn.tools]) for turn in turns]
    lasts: dict[int, int] = {}
    """Number of a role's first turn -> of its last."""
    found: list[int] = []
    for number, (turn, voice) in enumerate(zip(turns, voices, strict=True)):
        newest = sorted(lasts, key=lambda first: -lasts[first])
        role = next((first for first in newest if _same(voice, voices[lasts[first]], turn.depth > 0)), number)
        # A last request without tools tells nothing about those that the role has.
        if voice.tools or not voices[lasts.get(role, number)].tools:
            lasts[role] = number
        found.append(role)
    heads = Counter(voices[first].text[:_HEAD] for first in lasts if not voices[first].agent)
    names: dict[int, str] = {}
    for first in lasts:
        voice, head = voices[first], voices[first].text[:_HEAD]
        alone = heads[head] == 1
        tools = "" if head and alone else "\n".join(sorted(voice.tools))
        names[first] = voice.agent or _name(turns[first].system, head if alone else voice.text, tools)
    return [names[role] for role in found]


def handoffs(turns: Sequence[ParsedExchange], roles: Sequence[str]) -> tuple[Handoff, ...]:
    """Where another role takes over; each by the tool that was called just before, if one was called alone."""
    found: list[Handoff] = []
    for number, (before, after) in enumerate(pairwise(roles), 1):
        calls = [call.name for answer in turns[number - 1].answers for call in answer.calls]
        if before != after:
            found.append(Handoff(source=before, target=after, step=number, via=calls[0] if len(calls) == 1 else ""))
    return tuple(found)


def _plain(system: str) -> str:
    return " ".join(_NUMBER.sub("0", _PREFACE.sub("", system)).split())


def _same(mine: _Voice, other: _Voice, goes_on: bool) -> bool:
    if mine.agent or other.agent:
        return mine.agent == other.agent
    tools, others = mine.tools, other.tools
    if mine.text == other.text:
        # Within a conversation tools come and go; a conversation of its own with other tools is another agent's.
        return tools == others or ((goes_on or bool(tools & others)) and (tools <= others or others <= tools))
    if not mine.text or not other.text or tools != others or not tools:
        return False
    words, theirs = set(_WORD.findall(mine.text)), set(_WORD.findall(other.text))
    return len(words & theirs) >= _ALIKE * len(words | theirs)


def _name(system: str, text: str, tools: str) -> str:
    if not text and not tools:
        return ""
    return f"{label(system) or 'role'}#{digest(text.encode('utf-8', 'replace'), tools.encode('utf-8', 'replace'))[:8]}"


def label(system: str) -> str:
    """What a system prompt calls its reader, in at most four words and 32 characters; empty if it does not."""
    called = _CALLED.search(_PREFACE.sub("", system))
    words: list[str] = []
    for word in called.group(1).split() if called else ():
        if _END.fullmatch(word.lower()):
            break
        words.append(word.lower())
    return "-".join(words)[:32]
