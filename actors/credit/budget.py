"""`Budget`: what judgements may cost in any day, in tokens; what they cost in money is told.

The day slides in slots of five minutes; the slot that it begins in counts whole. What is under way is expected to cost
what judgements cost on average; a limit is passed by no more than they differ from that.
"""

from collections import deque
from collections.abc import Callable

import msgspec

SLOT = 300.0
DAY = 86_400.0
_MEMORY = 0.9
"""Share of the old value when a judgement moves the average cost."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What judgements cost in the last day."""

    tokens_day: float = 0.0
    money_day: float = 0.0


class _Slot(msgspec.Struct, array_like=True):
    number: int
    tokens: float = 0.0
    money: float = 0.0


class _Kept(msgspec.Struct):
    slots: list[_Slot]
    tokens: float


class Budget:
    """Counts what is spent, against `limit` tokens a day; 0: none."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._slots: deque[_Slot] = deque()
        self._tokens = 0.0
        """That a judgement costs on average."""
        self._asked = 0

    def used_up(self) -> str:
        """Which limit another judgement could pass, empty if none."""
        # What is asked now counts as well, or a limit that nobody could ever pay would never stop anything.
        used = self.spent().tokens_day + self._asked * self._tokens
        return "tokens per day" if self._limit and used >= self._limit else ""

    def begin(self) -> None:
        """A judgement is asked for."""
        self._asked += 1

    def end(self, tokens: float, money: float) -> None:
        """One that was begun has cost this much."""
        self._asked -= 1
        if not tokens and not money:
            return
        number = int(self._clock() // SLOT)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(_Slot(number))
            self._forget()
        slot = self._slots[-1]
        slot.tokens += tokens
        slot.money += money
        self._tokens += (1.0 - _MEMORY if self._tokens else 1.0) * (tokens - self._tokens)

    def spent(self) -> Spent:
        """In the day that ends now."""
        self._forget()
        return Spent(
            tokens_day=sum(slot.tokens for slot in self._slots), money_day=sum(slot.money for slot in self._slots)
        )

    def dump(self) -> bytes:
        """For `load`, in another life."""
        return msgspec.msgpack.encode(_Kept(list(self._slots), self._tokens))

    def load(self, data: bytes) -> None:
        """Go on from what `dump` gave."""
        kept = msgspec.msgpack.decode(data, type=_Kept)
        self._slots, self._tokens = deque(kept.slots), kept.tokens
        self._forget()

    def _forget(self) -> None:
        oldest = self._clock() - DAY
        while self._slots and (self._slots[0].number + 1) * SLOT <= oldest:
            self._slots.popleft()
