"""Imperfect demonstrations: what the warm start of the demo's model is made of.

A demonstrator knows the right actions and often does not take them: it forgets the precondition of a cancellation,
books before it has searched, gives up early, mixes up records. The model that imitates it is deliberately mediocre (a
third of the tasks), so that there is something to learn. Half of the demonstrations show a desk with invented tool
names together with a hint that names them; the model learns from these that a hint overrides habit, which is what
retrieved experience builds on later. Some of these names are words, others are made for the one demonstration and have
to be copied piece by piece. Names held out for drifts (`travel_words.HELD_OUT`) never occur here.
"""

import json
import random
from typing import Any

import msgspec

from actors.messages import ToolCall
from adapters.environments.travel.desk import Desk, Ticket
from adapters.environments.travel.drift import BASE, Variant
from adapters.environments.travel.environment import step
from adapters.environments.travel.words import CITIES, PEOPLE, RECORD_IDS
from tests.warmstart.chat import Demonstration
from tests.warmstart.tool_names import made_tool_name
from tests.warmstart.travel_oracle import Action, good_actions
from tests.warmstart.travel_words import HELD_OUT, HELD_OUT_PAIRS, SUFFIXES, VERBS

FAMILY_MIX = "AAABBBCCCDLLL"


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How the demonstrator errs, as probabilities; by family where it is a dict."""

    hinted: float = 0.5
    """Share of demonstrations with invented names and a hint."""
    hinted_queue: float = 0.2
    """The same for the queue, whose steps are many."""
    made: float = 0.7
    """Share of the invented names that are no words: made for one demonstration, and never again."""
    skips_check: dict[str, float] = msgspec.field(default_factory=lambda: {"B": 0.52, "C": 0.3, "L": 0.35})
    """Cancels without the precondition."""
    books_blindly: dict[str, float] = msgspec.field(default_factory=lambda: {"A": 0.6, "C": 0.3, "L": 0.35})
    """Books a flight that it has not searched for."""
    recovers: float = 0.35
    """Does the right thing after such an error; else it gives up."""
    slips: dict[str, float] = msgspec.field(
        default_factory=lambda: {"A": 0.10, "B": 0.10, "C": 0.05, "D": 0.10, "L": 0.02}
    )
    """Takes some other action, at each step, without a hint."""
    slips_hinted: float = 0.02
    """The same with a hint: hints must be worth following."""
    other_order: float = 0.3
    """Takes the good actions in another order than the usual one."""


def hints(kinds: str, variant: Variant) -> tuple[str, ...]:
    """The lessons that tell how tickets of `kinds` (letters A to D) are handled on this desk, one line each."""
    lines: list[str] = []
    book, cancel = variant.names["book"], variant.names["cancel"]
    if "B" in kinds or "C" in kinds:
        check = variant.names["check_policy"]
        lines.append(f"When to use: cancel. Content: before_cancel:{check} then cancel:{cancel}.")
    if "A" in kinds or "C" in kinds:
        first = f"before_book:{variant.names['quote']}" if variant.book_needs_quote else "search"
        lines.append(f"When to use: book. Content: {first} then book:{book}.")
    if "D" in kinds:
        lines.append("When to use: find. Content: search then finish.")
    return tuple(lines)


class Demonstrator:
    def __init__(self, rng: random.Random, habits: Habits | None = None) -> None:
        self._rng = rng
        self._habits = habits or Habits()

    def demonstrate(self) -> Demonstration:
        rng, habits = self._rng, self._habits
        family = rng.choice(FAMILY_MIX)
        hinted = rng.random() < (habits.hinted_queue if family == "L" else habits.hinted)
        variant = self._variant(hinted)
        desk = Desk(f"demonstration-{rng.random()}", family, variant)
        kinds = "".join(ticket.kind for ticket in desk.tickets)
        play = _Play(rng, habits, desk, hinted)
        turns: list[tuple[tuple[ToolCall, ...], str, tuple[dict[str, Any], ...]]] = []
        while not desk.done:
            name, arguments = play.action()
            calls = (ToolCall(name, json.dumps(arguments)),)
            turns.append((calls, "", ({"role": "tool", "content": step(desk, calls).text},)))
        hint = "".join("\n" + line for line in hints(kinds, variant)) if hinted else ""
        return Demonstration(hint=hint, goal=desk.goal, tools=variant.tools(), turns=turns, solved=desk.solved)

    def _variant(self, hinted: bool) -> Variant:
        """A desk for one demonstration: invented names with a hint, the usual ones without."""
        rng = self._rng
        names = dict(BASE.names)
        needs_quote = False
        if hinted:
            for role in ("book", "cancel", "check_policy"):
                if rng.random() < 0.75:
                    names[role] = self._name(names)
            needs_quote = rng.random() < 0.5
            if needs_quote and rng.random() < 0.9:
                names["quote"] = self._name(names)
        if rng.random() < 0.5:
            names["weather"] = self._name(names)
        return Variant(names, needs_quote)

    def _name(self, taken: dict[str, str]) -> str:
        """A tool name that is neither taken nor held out, nor holds one that is: it would be one of its pieces."""
        rng = self._rng
        while True:
            if rng.random() < self._habits.made:
                name = made_tool_name(rng)
                held_out = any(word in name for word in HELD_OUT)
            else:
                name = rng.choice(VERBS)
                if rng.random() < 0.5:
                    name += rng.choice(SUFFIXES)
                held_out = name in HELD_OUT_PAIRS
            if not held_out and name not in taken.values():
                return name


class _Play:
    """The demonstrator's mind during one episode: which errors it has made, and whether it will recover."""

    def __init__(self, rng: random.Random, habits: Habits, desk: Desk, hinted: bool) -> None:
        self._rng, self._habits, self._desk, self._hinted = rng, habits, desk, hinted
        self._names = desk.variant.names
        self._moods: dict[tuple[str, int], str] = {}

    def action(self) -> Action:
        rng, desk = self._rng, self._desk
        good = good_actions(desk)
        action = rng.choice(good) if rng.random() < self._habits.other_order else good[0]
        ticket = desk.ticket
        if ticket is None:
            return action
        if not self._hinted:
            error = self._error(ticket, action)
            if error is not None:
                return error
        slips = self._habits.slips_hinted if self._hinted else self._habits.slips[desk.family]
        return self._slip(ticket, action) if rng.random() < slips else action

    def _error(self, ticket: Ticket, action: Action) -> Action | None:
        """A characteristic error instead of `action`, or giving up after one; None to go on rightly."""
        rng, habits, family = self._rng, self._habits, self._desk.family
        name = action[0]
        if name == self._names["check_policy"]:
            if self._errs("check", habits.skips_check.get(family, 0.0)):
                return (self._names["cancel"], {"oid": ticket.order})
            return self._gives_up("check")
        if name == self._names["search_flight"] and ticket.wants_booking:
            if self._errs("search", habits.books_blindly.get(family, 0.0)):
                person = ticket.person if ticket.person_known else rng.choice(RECORD_IDS)
                return (self._names["book"], {"fid": rng.choice(RECORD_IDS), "pid": person})
            return self._gives_up("search")
        return None

    def _errs(self, what: str, probability: float) -> bool:
        """Whether to err now; decided at the first occasion for each ticket, and done at most once."""
        key = (what, self._desk.current)
        if key in self._moods:
            return False
        errs = self._rng.random() < probability
        self._moods[key] = "erred" if errs else "fine"
        return errs

    def _gives_up(self, what: str) -> Action | None:
        key = (what, self._desk.current)
        if self._moods[key] == "fine" or self._rng.random() < self._habits.recovers:
            self._moods[key] = "fine"
            return None
        return ("finish", {"answer": "done"})

    def _slip(self, ticket: Ticket, action: Action) -> Action:
        """Some other action: a useless tool, a mixed-up argument, or the end."""
        rng = self._rng
        name, arguments = action
        kind = rng.random()
        if kind < 0.4:
            weather = (self._names["weather"], {"city": ticket.city})
            quote = (self._names["quote"], {"fid": ticket.flight})
            quotable = ticket.flight_found and not self._hinted
            person = ("find_person", {"name": rng.choice(PEOPLE)})
            return rng.choice([weather, person, quote if quotable else weather])
        if kind < 0.75 and arguments:
            key = rng.choice(list(arguments))
            return (name, {**arguments, key: self._other_value(ticket, key, arguments[key])})
        return ("finish", {"answer": rng.choice(["done", rng.choice(RECORD_IDS)])})

    def _other_value(self, ticket: Ticket, key: str, value: str) -> str:
        rng = self._rng
        if value in RECORD_IDS:
            return rng.choice([ticket.person, ticket.flight, ticket.order, rng.choice(RECORD_IDS)])
        return rng.choice({"name": PEOPLE, "to": CITIES}.get(key, (value,)))
