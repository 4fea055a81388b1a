"""The travel desk's sync core: tickets, their records, the tools' effects, and the verification of the outcome.

Four kinds of ticket: A books a flight (4 good steps), B cancels an order (5, with a precondition that nobody tells), C
does both (7), D only finds a flight (2). Family L is a queue of three tickets of kind A or B (14 to 17 steps). Wrong
calls are answered with an error or, worse, take effect: a flight booked to the wrong place or an order cancelled that
should have stayed cannot be undone, and the outcome is then 0 whatever follows.
"""

import random
from collections.abc import Callable
from typing import Any

from adapters.environments.travel.drift import PARAMETERS, Variant
from adapters.environments.travel.words import CITIES, PEOPLE, RECORD_IDS

Answer = dict[str, str]

FAMILIES = {"A": 4, "B": 4, "C": 2, "D": 2, "L": 4}
"""The families with their weight in a mix."""
GOALS = {
    "A": "Book a flight to:{city} for:{name}.",
    "B": "Cancel the order for:{name}.",
    "C": "Cancel the order for:{name} and book a flight to:{city}.",
    "D": "Find a flight to:{city}.",
}
QUEUE_GOAL = "Clear the queue."
QUEUE_LENGTH = 3
STEP_LIMIT = 10
QUEUE_STEP_LIMIT = 24


class Ticket:
    """What a customer wants, the records behind it, and how far it has come."""

    def __init__(self, kind: str, name: str, city: str, records: list[str]) -> None:
        self.kind, self.name, self.city = kind, name, city
        self.person, self.flight, self.order, self.reference, self.other_person, self.other_flight = records
        self.person_known = self.flight_found = self.order_listed = False
        self.quoted = self.checked = self.booked = self.cancelled = False
        self.flights: tuple[str, ...] = ()
        """As they were booked."""

    @property
    def goal(self) -> str:
        return GOALS[self.kind].format(name=self.name, city=self.city)

    @property
    def wants_booking(self) -> bool:
        return self.kind in "AC"

    @property
    def wants_cancelling(self) -> bool:
        return self.kind in "BC"

    @property
    def done(self) -> bool:
        return (
            self.booked == self.wants_booking
            and self.cancelled == self.wants_cancelling
            and (self.kind != "D" or self.flight_found)
        )


class Desk:
    """One attempt at one task.

    Args:
        seed: everything random about the task; the same text gives the same tickets and records.
        family: one letter of `FAMILIES`.
        variant: how the tools are called.
    """

    def __init__(self, seed: str, family: str, variant: Variant) -> None:
        rng = random.Random(seed)
        kinds = [rng.choice("AB") for _ in range(QUEUE_LENGTH)] if family == "L" else [family]
        names, cities = rng.sample(PEOPLE, len(kinds)), rng.sample(CITIES, len(kinds))
        records = rng.sample(RECORD_IDS, 6 * len(kinds))
        self.tickets = [Ticket(kind, names[i], cities[i], records[6 * i : 6 * i + 6]) for i, kind in enumerate(kinds)]
        self._seed, self.family, self.variant = seed, family, variant
        self.queue = family == "L"
        self.current = -1 if self.queue else 0
        self.steps = 0
        self.limit = QUEUE_STEP_LIMIT if self.queue else STEP_LIMIT
        self.done = self.solved = False
        self.answer = ""
        """What `finish` was given."""
        self._harm = False
        self._tools: dict[str, Callable[..., Answer]] = {
            "find_person": self._find_person,
            "search_flight": self._search_flight,
            "quote": self._quote,
            "book": self._book,
            "list_orders": self._list_orders,
            "check_policy": self._check_policy,
            "cancel": self._cancel,
        }

    @property
    def goal(self) -> str:
        return QUEUE_GOAL if self.queue else self.tickets[0].goal

    @property
    def ticket(self) -> Ticket | None:
        """The ticket on the desk; None before the first and after the last of a queue."""
        return self.tickets[self.current] if 0 <= self.current < len(self.tickets) else None

    def state(self) -> dict[str, Any]:
        """What was booked, what was cancelled, and the closing word; steps and looks leave no trace in it."""
        tickets = [{"flights": list(one.flights), "cancelled": one.cancelled} for one in self.tickets]
        return {"tickets": tickets, "answer": self.answer}

    def call(self, name: str, arguments: dict[str, str]) -> Answer:
        answer = self._dispatch(name, arguments)
        self._count()
        return answer

    def reject(self) -> Answer:
        """The model's turn was not one tool call."""
        self._count()
        return {"error": "bad call"}

    def _count(self) -> None:
        self.steps += 1
        self.done = self.done or self.steps >= self.limit

    def _dispatch(self, name: str, arguments: dict[str, str]) -> Answer:
        role = self.variant.role(name)
        if role is None:
            return {"error": "no tool"}
        if set(arguments) != set(PARAMETERS[role]):
            return {"error": "bad arguments"}
        if role == "finish":
            return self._finish(arguments["answer"])
        if role == "weather":
            return {"sky": "sun"}
        if role == "next_ticket":
            return self._next_ticket()
        if self.ticket is None:
            return {"error": "no ticket"}
        return self._tools[role](self.ticket, **arguments)

    def _finish(self, answer: str) -> Answer:
        self.done, self.answer = True, answer
        first = self.tickets[0]
        wanted = {"A": first.reference, "B": "done", "C": first.reference, "D": first.flight}[first.kind]
        if self.queue:
            wanted = "done"
        self.solved = not self._harm and all(ticket.done for ticket in self.tickets) and answer == wanted
        return {}

    def _next_ticket(self) -> Answer:
        if not self.queue:
            return {"ticket": "none"}
        if self.ticket is not None and not self.ticket.done:
            return {"error": "not done"}
        self.current = min(self.current + 1, len(self.tickets))
        return {"ticket": self.ticket.goal if self.ticket is not None else "none"}

    def _find_person(self, ticket: Ticket, name: str) -> Answer:
        if name == ticket.name:
            ticket.person_known = True
            return {"pid": ticket.person}
        return {"pid": ticket.other_person} if name in PEOPLE else {"error": "no person"}

    def _search_flight(self, ticket: Ticket, to: str) -> Answer:
        if to == ticket.city:
            ticket.flight_found = True
            return {"fid": ticket.flight}
        return {"fid": ticket.other_flight} if to in CITIES else {"error": "no flight"}

    def _quote(self, ticket: Ticket, fid: str) -> Answer:
        if not ticket.flight_found or fid != ticket.flight:
            return {"error": "bad fid"}
        ticket.quoted = True
        return {"quote": "ok"}

    def _book(self, ticket: Ticket, fid: str, pid: str) -> Answer:
        right = ticket.flight_found and fid == ticket.flight
        if not right and fid != ticket.other_flight:
            return {"error": "search first"}
        if not ticket.person_known or pid != ticket.person:
            return {"error": "bad pid"}
        if self.variant.book_needs_quote and not ticket.quoted:
            return {"error": "refused"}
        self._harm = self._harm or not right or not ticket.wants_booking or ticket.booked
        ticket.booked, ticket.flights = True, (*ticket.flights, fid)
        return {"ref": ticket.reference}

    def _list_orders(self, ticket: Ticket, pid: str) -> Answer:
        if not ticket.person_known or pid != ticket.person:
            return {"error": "bad pid"}
        ticket.order_listed = True
        return {"oid": ticket.order}

    def _check_policy(self, ticket: Ticket, oid: str) -> Answer:
        if not ticket.order_listed or oid != ticket.order:
            return {"error": "bad oid"}
        ticket.checked = True
        return {"policy": "ok"}

    def _cancel(self, ticket: Ticket, oid: str) -> Answer:
        if not ticket.order_listed or oid != ticket.order:
            return {"error": "bad oid"}
        if not ticket.checked:
            return {"error": "refused"}
        if ticket.cancelled:
            return {"error": "gone"}
        self._harm = self._harm or not ticket.wants_cancelling
        ticket.cancelled = True
        return {"ok": "yes"}
