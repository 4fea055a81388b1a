"""`Budget`: what judgements may cost in a day (UTC), in tokens; what they cost in money is told."""

from collections.abc import Callable

import msgspec

_DAY = 86_400.0
_MEMORY = 0.9
"""Share of the old value when a judgement moves the average cost."""


class Spent(msgspec.Struct, kw_only=True):
    """What judgements have cost today."""

    day: int = 0
    """Since 1970."""
    tokens_day: float = 0.0
    money_day: float = 0.0


class Budget:
    """Counts what is spent, against `limit` tokens a day; 0: none."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._spent = Spent()
        self._average = 0.0
        self._asked = 0

    def used_up(self) -> str:
        """Which limit another judgement could pass, empty if none."""
        # What is under way is expected to cost what judgements cost on average.
        used = self.spent().tokens_day + self._asked * self._average
        return "tokens per day" if self._limit and used >= self._limit else ""

    def begin(self) -> None:
        """A judgement is asked for."""
        self._asked += 1

    def end(self, tokens: float, money: float) -> None:
        """One that was begun has cost this much."""
        self._asked -= 1
        if tokens or money:
            spent = self.spent()
            spent.tokens_day += tokens
            spent.money_day += money
            self._average += (1.0 - _MEMORY if self._average else 1.0) * (tokens - self._average)

    def spent(self) -> Spent:
        """What today has cost by now."""
        today = int(self._clock() // _DAY)
        if self._spent.day != today:
            self._spent = Spent(day=today)
        return self._spent

    def dump(self) -> bytes:
        """For `load`, in another life."""
        return msgspec.msgpack.encode(self.spent())

    def load(self, data: bytes) -> None:
        """Go on from what `dump` gave."""
        self._spent = msgspec.msgpack.decode(data, type=Spent)
