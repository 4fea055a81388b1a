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


def roles_of(turns: Sequence[ParsedExchange]) -> list[str]:
    """The role of each turn, such as `planner#1f0c2a9b`; empty for one without name, system prompt and tools.

    Args:
        turns: of one trajectory, by start.
    """
    tools = [frozenset(offered(turn.tools)) for turn in turns]
    texts = [_plain(turn.system) for turn in turns]
    lasts: dict[int, int] = {}
    """Number of a role's first turn -> of its last."""
    found: list[int] = []
    for number, turn in enumerate(turns):
        newest = sorted(lasts, key=lambda first: -lasts[first])
        alike = (
            first
            for first in newest
            if turn.agent == turns[first].agent
            and (
                turn.agent
                or _same(texts[number], texts[lasts[first]], tools[number], tools[lasts[first]], turn.depth > 0)
            )
        )
        role = next(alike, number)
        # A last request without tools tells nothing about those that the role has.
        if tools[number] or not tools[lasts.get(role, number)]:
            lasts[role] = number
        found.append(role)
    names = {first: turns[first].agent for first in lasts}
    heads = {first: texts[first][:_HEAD] for first, name in names.items() if not name}
    shared = Counter(heads.values())
    for first, head in heads.items():
        text = texts[first] if shared[head] > 1 else head
        own = "" if text and shared[head] == 1 else "\n".join(sorted(tools[first]))
        names[first] = _name(turns[first].system, text, own)
    return [names[role] for role in found]


def handoffs(turns: Sequence[ParsedExchange], roles: Sequence[str]) -> tuple[Handoff, ...]:
    """Where another role takes over; each by the tool whose call led there, if one did."""
    found: list[Handoff] = []
    for number in range(1, len(turns)):
        before, after = roles[number - 1], roles[number]
        if before != after:
            found.append(Handoff(source=before, target=after, step=number, via=_via(turns, number)))
    return tuple(found)


def _plain(system: str) -> str:
    """The prompt without what is no part of the role."""
    return " ".join(_NUMBER.sub("0", _PREFACE.sub("", system)).split())


def _same(text: str, other: str, tools: frozenset[str], others: frozenset[str], goes_on: bool) -> bool:
    if text == other:
        # Within a conversation tools come and go; a conversation of its own with other tools is another agent's.
        near = tools <= others or others <= tools
        return tools == others or (goes_on and near) or (bool(tools & others) and near)
    if not text or not other or tools != others or not tools:
        return False
    mine, theirs = set(_WORD.findall(text)), set(_WORD.findall(other))
    return len(mine & theirs) >= _ALIKE * len(mine | theirs)


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


def _via(turns: Sequence[ParsedExchange], number: int) -> str:
    """The tool that the turn before `number` called, if it called one alone."""
    calls = [call for answer in turns[number - 1].answers for call in answer.tool_calls]
    return calls[0].name if len(calls) == 1 else ""
