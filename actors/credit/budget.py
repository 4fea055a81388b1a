"""`Budget`: what judgements may cost in a day (UTC), in tokens; what they cost in money is told."""

from collections.abc import Callable

import msgspec

_DAY = 86_400.0


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

    def used_up(self) -> str:
        """Which limit is reached, empty if none. What is under way then is paid for beside it."""
        return "tokens per day" if self._limit and self.spent().tokens_day >= self._limit else ""

    def add(self, tokens: float, money: float) -> None:
        """A judgement has cost this much."""
        spent = self.spent()
        spent.tokens_day += tokens
        spent.money_day += money

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
