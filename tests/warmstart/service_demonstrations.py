"""Imperfect demonstrations: what the warm start of the service desk's model is made of.

A demonstrator knows the right turns and often does not take them: it forgets what goes before a refund, guesses an
amount, makes up an order that nobody named, says "Done." too early. Part of the demonstrations show a desk whose tools
have names that were made for this one demonstration, together with lessons, in plain sentences and in those of the
rules that draw lessons, that say what they are for. A lesson is worth following there, and the names have to be copied
piece by piece: none occurs twice.
"""

import json
import random
import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from actors.messages import ToolCall
from adapters.environments.service_desk import grammar
from adapters.environments.service_desk.agents import AGENTS, NO_DRIFT, Agent, Drift
from adapters.environments.service_desk.desk import Case, Desk, Turn
from adapters.environments.service_desk.environment import step
from adapters.environments.service_desk.grammar import Wish
from tests.warmstart.chat import Demonstration
from tests.warmstart.service_oracle import DOES, LOOKS, PREPARES, good_turns, next_call
from tests.warmstart.tool_names import made_tool_name

SENTENCES = {
    "after": (
        "call {before} first, then {tool}",
        "before {tool} always call {before}",
        "use {tool}, but only after {before}",
        "{tool} is refused unless {before} was called",
        "to {do} it takes {before} and then {tool}",
        "first {before}, then {tool}",
    ),
    "alone": (
        "call {tool}",
        "to {do} use {tool}",
        "{tool} is the tool to {do}",
        "the right tool is {tool}",
        "it is done with {tool}",
    ),
    "found": (
        "call {before} for what {tool} needs",
        "find it with {before}, then call {tool}",
        "{tool} takes what {before} has found",
    ),
}
"""Lessons in plain sentences: of a tool that another goes before, of a tool alone, of one that finds for another."""
DRAWN = {
    "instead": "call {tool} instead of {other}, which is gone",
    "same": "before {tool} always call {other} with the same {argument}",
    "before": "before {tool} always call {other}",
    "from": "find {argument} with {other}, then call {tool}",
    "known": "{tool} takes {argument} from the request or from an earlier result, never made up",
}
"""Lessons as the rules word what they draw; a test holds them to theirs."""
PURPOSES: dict[Wish, str] = {
    "refund": "pay money back", "label": "send a return label", "cancel": "stop an order", "track": "find a parcel",
    "move": "change an address", "reset": "give a new password", "unlock": "open a locked account",
    "close": "delete an account",
}  # fmt: skip

AGENT_OF = {role: agent for agent in AGENTS.values() for role in agent.tools}


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How the demonstrator errs, as probabilities."""

    hinted: float = 0.5
    """Share of demonstrations with lessons."""
    renamed: float = 0.75
    """Share of those with made-up names."""
    skips_before: float = 0.75
    """Does without what goes before."""
    guesses: float = 0.4
    """Makes up an amount without a look, or an order that was not named."""
    confuses: float = 0.08
    """Takes another tool of the agent for the last step."""
    closes_early: float = 0.25
    """Says "Done." with something left, at each step of a request with more than one wish."""
    recovers: float = 0.25
    """Does the right thing after an error or a complaint; else it says "Done."."""
    at_once: float = 0.4
    """Several calls in a turn, where several can be made."""


def renamed(rng: random.Random, agent: Agent) -> Drift:
    """A desk on which one to three tools of `agent` have new names."""
    roles = rng.sample(list(agent.tools), rng.randint(1, 3))
    return Drift(rename={role: made_tool_name(rng) for role in roles})


def lesson(rng: random.Random, wish: Wish, drift: Drift, goal: str) -> str:
    """A lesson about `wish` on a desk under `drift`, as it stands in a prompt, perhaps filed under words of `goal`."""
    tool, role = drift.name(DOES[wish]), PREPARES.get(wish, "")
    finder, way = LOOKS.get(wish, ""), rng.random()
    if way < 0.25 and finder not in drift.rename:  # the form for tools that are called by the word that goals use
        intent = rng.choice([intent_of(DOES[wish]), first_word(DOES[wish])])
        first = f"before_{intent}:{drift.name(role)} then " if role else f"{intent_of(finder)} then " if finder else ""
        return f"\nWhen to use: {intent}. Content: {first}{intent}:{tool}."
    said = _drawn(rng, [wish], (DOES[wish], role, finder), drift, goal) if way < 0.5 else ""
    if said:
        return said
    kind = "after" if role else "found" if finder and rng.random() < 0.7 else "alone"
    sentence = rng.choice(SENTENCES[kind])
    when = rng.choice([wish, PURPOSES[wish]])
    content = sentence.format(tool=tool, before=drift.name(role or finder) if role or finder else "", do=PURPOSES[wish])
    if finder and finder in drift.rename and kind != "found":
        content += f". find it with {drift.name(finder)}"
    return f"\nWhen to use: {when}. Content: {content}."


def _drawn(rng: random.Random, wishes: Sequence[Wish], gone: Collection[str], drift: Drift, goal: str) -> str:
    """What the rules would say: each name in `gone` that is gone, what goes before, and where an argument is from.

    They file a lesson under words that the goals of its runs share, which may say little of what it is for.
    """
    said = [("instead", drift.name(role), role, "") for role in gone if role in drift.rename]
    for wish in wishes:
        does, finder = DOES[wish], LOOKS.get(wish, "")
        argument = AGENT_OF[does].tools[does][0]
        if wish in PREPARES and rng.random() < 0.7:
            kind = rng.choice(("same", "same", "before"))
            said.append((kind, drift.name(does), drift.name(PREPARES[wish]), argument))
        if finder and rng.random() < 0.15:
            found = {"refund": "amount", "track": "parcel"}.get(wish, argument)
            said.append((rng.choice(("from", "known")), drift.name(does), drift.name(finder), found))
    rng.shuffle(said)
    lines: list[str] = []
    for kind, tool, other, argument in said:
        about: list[Wish] = [one for one in wishes if other in (DOES[one], PREPARES.get(one), LOOKS.get(one))] or list(
            wishes
        )
        if kind == "instead" and rng.random() < 0.3:  # a name that a probe has found
            word, role = first_word(other), PREPARES.get(about[0], "") if other == DOES[about[0]] else ""
            first = f"before_{word}:{drift.name(role)} then " if role else ""
            lines.append(f"\nWhen to use: {word}. Content: {first}{word}:{tool}.")
            continue
        content = DRAWN[kind].format(tool=tool, other=other, argument=argument)
        lines.append(f"\nWhen to use: {_filed(rng, about[0], other or tool, goal)}. Content: {content}.")
    return "".join(lines)


def _filed(rng: random.Random, wish: Wish, tool: str, goal: str) -> str:
    """Words that a lesson may be filed under: of goals, of the tool's name, or what the customer wants."""
    way = rng.random()
    if way < 0.6:
        text = goal if goal and rng.random() < 0.5 else rng.choice(grammar.WISHES[wish]["train"])
        words = re.findall(r"\b[a-z]{4,}\b", re.sub(r"\S+@\S+|\{[a-z]+\}", "", text))
        if words:
            kept = sorted(rng.sample(range(len(words)), min(len(words), rng.randint(1, 5))))
            return " ".join(words[at] for at in kept)
    return (
        " ".join(re.findall(r"[a-z]+|[A-Z][a-z]+", tool)).lower() if way < 0.8 else rng.choice([wish, PURPOSES[wish]])
    )


def intent_of(role: str) -> str:
    return first_word(role.removeprefix("orders."))


def first_word(role: str) -> str:
    """The first word of a tool's name: what a probe files a rename under."""
    return re.findall(r"[a-z]+|[A-Z][a-z]+", role)[0]


def hints(rng: random.Random, desk: Desk) -> str:
    """Lessons for all that the customer of `desk` wants, and perhaps one for something else."""
    wishes: list[Wish] = [case.wish for case in desk.cases]
    if rng.random() < 0.45:
        # Given to whoever has the tools: each name that is gone, needed or not, and no word of much that is needed.
        some: list[Wish] = [wish for wish in desk.agent.wishes if rng.random() < 0.5] or wishes
        said = _drawn(rng, some, list(desk.drift.rename), desk.drift, desk.goal)
        if said:
            return "".join(f"\n{line}" for line in _once(said))
    rest: list[Wish] = [wish for wish in desk.agent.wishes if wish not in wishes]
    if rest and rng.random() < 0.3:
        wishes.append(rng.choice(rest))
    rng.shuffle(wishes)
    said = "".join(lesson(rng, wish, desk.drift, desk.goal) for wish in wishes)
    return "".join(f"\n{line}" for line in _once(said))


def _once(said: str) -> list[str]:
    """The lines of `said`, each content once: two wishes may need the same tool."""
    return list({line.partition(". Content: ")[2]: line for line in said.split("\n")[1:]}.values())


class Demonstrator:
    def __init__(self, rng: random.Random, habits: Habits | None = None) -> None:
        self._rng = rng
        self._habits = habits or Habits()

    def demonstrate(self, hinted: bool | None = None) -> Demonstration:
        """Play one task, with lessons or without; None draws by habit."""
        rng, habits = self._rng, self._habits
        letter = rng.choice(list(AGENTS))
        if hinted is None:
            hinted = rng.random() < habits.hinted
        drift = renamed(rng, AGENTS[letter]) if hinted and rng.random() < habits.renamed else NO_DRIFT
        desk = Desk(f"demonstration-{rng.random()}", letter, "train", drift)
        hint = hints(rng, desk) if hinted else ""
        play = _Play(rng, habits, desk, hinted)
        turns: list[tuple[tuple[ToolCall, ...], str, tuple[dict[str, Any], ...]]] = []
        while not desk.done:
            turn = play.turn()
            calls = tuple(ToolCall(name, json.dumps(arguments)) for name, arguments in turn.calls)
            turns.append((calls, turn.text, step(desk, calls, turn.text).messages))
        tools = drift.tools(desk.agent)
        if hinted:  # in any order: a new name must be read from the lesson, not told by its place
            tools = rng.sample(tools, len(tools))
        return Demonstration(
            system=desk.agent.system, hint=hint, goal=desk.goal, tools=tools, turns=turns, solved=desk.solved
        )


class _Play:
    """The demonstrator's mind during one episode: which errors it has made, and whether it will recover."""

    def __init__(self, rng: random.Random, habits: Habits, desk: Desk, hinted: bool) -> None:
        self._rng, self._habits, self._desk, self._hinted = rng, habits, desk, hinted
        self._moods: dict[tuple[str, int], bool] = {}
        self._failed = False
        """The last turn was an error, or brought a complaint."""

    def turn(self) -> Turn:
        rng, desk = self._rng, self._desk
        good = good_turns(desk)
        right = good[-1] if len(good) > 1 and rng.random() < self._habits.at_once else good[0]
        if self._hinted:
            return right
        if self._failed:
            self._failed = False
            if rng.random() >= self._habits.recovers:
                self._failed = not desk.complained
                return Turn(text="Done.")
            return right
        wrong = self._wrong()
        if wrong is not None:
            self._failed = True
            return wrong
        return right

    def _wrong(self) -> Turn | None:
        rng, habits, desk = self._rng, self._habits, self._desk
        if not desk.open:
            return None
        case = desk.open[0]
        at = desk.cases.index(case)
        if not case.told and self._errs("made up", at, habits.guesses):
            made = grammar.email(rng) if case.needs == "email" else grammar.order_id(rng, rng.randint(1000, 9999))
            first = LOOKS.get(case.wish) or PREPARES.get(case.wish) or DOES[case.wish]
            return self._call(first, {case.needs: made, **({"city": case.city} if case.wish == "move" else {})})
        if not case.told:
            return None
        if len(desk.open) > 1 and rng.random() < habits.closes_early:
            return Turn(text="Done.")
        following = next_call(case)
        if following is None:
            return None
        role = following[0]
        if case.wish == "refund" and role == "lookup_order" and self._errs("amount", at, habits.guesses):
            role = DOES[case.wish] if case.prepared else PREPARES[case.wish]
            return self._call(role, self._arguments(case, role, amount=str(rng.randint(11, 399))))
        if role == PREPARES.get(case.wish) and self._errs("before", at, habits.skips_before):
            return self._call(DOES[case.wish], self._arguments(case, DOES[case.wish], amount=case.amount))
        if role == DOES[case.wish] and self._errs("other", at, habits.confuses):
            others = [other for other in desk.agent.wishes if other not in (case.wish, "track")]
            role = DOES[rng.choice(others)]
            return self._call(role, self._arguments(case, role, amount=case.amount))
        return None

    @staticmethod
    def _arguments(case: Case, role: str, *, amount: str) -> dict[str, str]:
        if case.needs == "email":
            return {"user": case.user}
        extra = {"create_refund": {"amount": amount}, "orders.move": {"city": case.city}}.get(role, {})
        return {"order": case.id, **extra}

    def _call(self, role: str, arguments: dict[str, str]) -> Turn:
        return Turn(calls=((self._desk.drift.name(role), arguments),))

    def _errs(self, what: str, at: int, probability: float) -> bool:
        """Whether to err now; decided at the first occasion for each case, and done at most once."""
        key = (what, at)
        if key in self._moods:
            return False
        self._moods[key] = True
        return self._rng.random() < probability
