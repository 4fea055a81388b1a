"""The service desk's sync core: customers with their records, the tools' effects, and the verification of the outcome.

Every agent has one tool that goes before another and that nobody tells of: the policy before a refund, the hold before
a cancellation, the verification before an account is changed. Wrong calls are refused or, worse, take effect: a refund
of the wrong amount, an order cancelled that was to be moved, an account closed that was only locked cannot be undone,
and the outcome is then 0 whatever follows.

A turn without calls speaks to the customer: a question is answered, a closing word ends the attempt, brings the next
wish, or, if what was asked for is not done, a complaint. Who has complained once does not come back again.
"""

import random
import re

import msgspec

from actors.ports.environments import Split
from adapters.environments.service_desk import grammar
from adapters.environments.service_desk.agents import AGENTS, NO_DRIFT, ROLES, Answer, Drift
from adapters.environments.service_desk.grammar import CITIES, DETAILS, NUDGE, Wish

STEP_LIMIT = 12
"""Turns; the longest right way has eight."""
SECOND_WISH = 0.2
"""Share of requests with two wishes at once."""
COMES_BACK = 0.2
"""Share of customers who come back with another wish after the first answer."""
MISSING = 0.2
"""Share of requests that leave out which order or account it is about."""

CHANGES: dict[str, Wish] = {
    "create_refund": "refund", "send_label": "label", "orders.cancel": "cancel", "orders.move": "move",
    "resetPassword": "reset", "unlockUser": "unlock", "closeAccount": "close",
}  # fmt: skip
"""Which wish a tool fulfils; parcels are told of in words."""


class Case:
    """A wish, the records behind it, and how far it has come."""

    def __init__(
        self, rng: random.Random, wish: Wish, split: Split, missing: bool, numbers: tuple[int, int, int]
    ) -> None:
        account = wish in ("reset", "unlock", "close")
        self.wish: Wish = wish
        self.id = grammar.email(rng) if account else grammar.order_id(rng, numbers[0])
        """What the customer names: an order or an e-mail address."""
        self.city, self.place = rng.sample(CITIES, 2)
        """Where an order shall go, and where the parcel is."""
        self.user = f"u{numbers[1]}"
        self.parcel = f"P{numbers[2]}"
        self.amount = str(rng.randint(11, 399))
        self.told = not missing
        """Whether the customer has said which order or account it is about."""
        self.words = grammar.wish_text(rng, split, wish, "" if missing else self.id, self.city)
        self.again = grammar.wish_text(rng, split, wish, self.id, self.city)
        self.detail = rng.choice(DETAILS[split]).format(id=self.id)
        self.found = self.prepared = self.tracked = self.done = False

    @property
    def needs(self) -> str:
        """What an agent asks for who does not know it."""
        return "email" if self.wish in ("reset", "unlock", "close") else "order"


class Desk:
    """One attempt at one task.

    Args:
        seed: everything random about the task; the same text gives the same customer.
        letter: which agent, a key of `AGENTS`.
        split: whose phrases the customer uses.
        drift: how the tools are called.
    """

    def __init__(self, seed: str, letter: str, split: Split, drift: Drift = NO_DRIFT) -> None:
        rng = random.Random(seed)
        self.agent, self.drift = AGENTS[letter], drift
        self._key = (seed, letter, split, drift)
        count = 2 if rng.random() < SECOND_WISH else 1
        back = rng.random() < COMES_BACK
        missing = count == 1 and rng.random() < MISSING
        wishes = rng.sample(self.agent.wishes, min(len(self.agent.wishes), count + back))
        numbers = iter(rng.sample(range(1000, 10_000), 3 * len(wishes)))
        self.cases = [
            Case(rng, wish, split, missing and at == 0, (next(numbers), next(numbers), next(numbers)))
            for at, wish in enumerate(wishes)
        ]
        self.asked = count
        """Cases that the customer has spoken of; those behind come later."""
        self.goal = grammar.request(rng, split, [case.words for case in self.cases[:count]])
        later = self.cases[count:]
        self.later = [rng.choice(grammar.AGAIN[split]).format(wish=case.words) for case in later]
        self._complaint = rng.choice(grammar.COMPLAINTS[split])
        self.steps = 0
        self.done = self.solved = self.complained = False
        self.effects: list[str] = []
        """What cannot be undone, in order."""
        self._harm = False

    @property
    def open(self) -> list[Case]:
        """What the customer has asked for and does not have."""
        return [case for case in self.cases[: self.asked] if not case.done]

    def state(self) -> dict[str, list[str]]:
        """What was changed, and where the customer was told that parcels are; looks and steps leave no trace in it."""
        return {
            "effects": sorted(self.effects),
            "told": [case.place for case in self.cases if case.wish == "track" and case.done],
        }

    def call(self, name: str, arguments: dict[str, str] | None) -> Answer:
        """Call a tool.

        Args:
            arguments: None if they were not a JSON object of strings.
        """
        role = self.drift.role(self.agent, name)
        if role is None:
            return {"error": "no such tool", "status": "404"}
        if arguments is None or set(arguments) != set(ROLES[role]):
            return {"error": "bad arguments", "status": "400"}
        if "order" in arguments or "email" in arguments:
            wanted = arguments.get("order", arguments.get("email"))
            case = next((case for case in self.cases if case.id == wanted), None)
        elif "parcel" in arguments:
            case = next((case for case in self.cases if case.found and case.parcel == arguments["parcel"]), None)
        else:
            case = next((case for case in self.cases if case.found and case.user == arguments["user"]), None)
        if case is None:
            missing = next(key for key in ROLES[role] if key not in ("amount", "city"))
            return {"error": f"unknown {missing}", "status": "404"}
        return self._effect(role, case, arguments)

    def count(self) -> None:
        """A turn is over."""
        self.steps += 1
        self.done = self.done or self.steps >= STEP_LIMIT

    def _effect(self, role: str, case: Case, arguments: dict[str, str]) -> Answer:
        if role == "lookup_order":
            case.found = True
            return {"order": case.id, "amount": case.amount}
        if role == "orders.lookup":
            case.found = True
            return {"parcel": case.parcel}
        if role == "findUser":
            case.found = True
            return {"user": case.user}
        if role in ("check_policy", "orders.hold", "verifyUser"):
            case.prepared = True
            return {"ok": "yes"}
        if role == "orders.track":
            case.tracked = True
            return {"parcel": case.parcel, "is in": case.place}
        if role in ("create_refund", "orders.cancel", "resetPassword", "closeAccount") and not case.prepared:
            return {"error": "refused", "status": "403"}
        return self._change(CHANGES[role], case, arguments)

    def _change(self, wish: Wish, case: Case, arguments: dict[str, str]) -> Answer:
        """What is done is done; whether it was wanted shows in the end."""
        if wish == case.wish and case.done:
            return {"error": "done already", "status": "409"}
        right = arguments.get("amount", case.amount) == case.amount and arguments.get("city", case.city) == case.city
        wanted = wish == case.wish and right
        self._harm = self._harm or not wanted
        self.effects.append(" ".join((wish, *arguments.values())))
        case.done = case.done or wanted
        return {wish: "done"}

    def say(self, text: str) -> str:
        """Speak to the customer; returns what they say, empty at the end."""
        if "?" in text:
            unknown = next((case for case in self.open if not case.told), None)
            if unknown is None:
                return NUDGE
            unknown.told = True
            return unknown.detail
        if not text.strip():
            return NUDGE
        for case in self.open:
            if case.wish == "track" and case.tracked and re.search(rf"\b{re.escape(case.place)}\b", text):
                case.done = True
        if self.open:
            if self.complained:
                self.done = True
                return ""
            self.complained = True
            for case in self.open:
                case.told = True
            return self._complaint.format(wish=self.open[0].again)
        if self.asked < len(self.cases):
            self.asked += 1
            return self.later[self.asked - len(self.cases) - 1]
        self.done, self.solved = True, not self._harm
        return ""


class Turn(msgspec.Struct, frozen=True):
    """What the model did in one turn: calls, or words."""

    calls: tuple[tuple[str, dict[str, str]], ...] = ()
    text: str = ""
