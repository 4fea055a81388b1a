"""How often an address may show a wrong key: a table of bounded size, so that trying costs the one who tries.

Keys hold 256 random bits: nobody guesses one. What the limit keeps small is the noise of a client with a revoked key,
and the work of refusing it. A right key opens at any time, also from an address that has tried wrong ones: behind a
proxy or a NAT somebody else's tries must not keep an operator from `evolved freeze`.
"""

from collections import OrderedDict
from collections.abc import Callable

_MOST_ADDRESSES = 1024


class AuthThrottle:
    """Counts wrong keys by address, in windows of time."""

    def __init__(self, *, most: int = 10, seconds: float = 60.0, clock: Callable[[], float]) -> None:
        """
        Args:
            most: wrong keys in a window that are answered as such.
            seconds: length of a window.
            clock: seconds, of any beginning.
        """
        self._most, self._seconds, self._clock = most, seconds, clock
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        """Addresses in the table."""
        return len(self._seen)

    def failed(self, address: str) -> float:
        """Count a wrong key from `address`; seconds until it should try again, 0 if that is not too often."""
        now = self._clock()
        begun, count = self._seen.pop(address, (now, 0))
        if now - begun >= self._seconds:
            begun, count = now, 0
        self._seen[address] = (begun, count + 1)
        if len(self._seen) > _MOST_ADDRESSES:
            self._seen.popitem(last=False)  # the one that was silent the longest
        return max(1.0, begun + self._seconds - now) if count >= self._most else 0.0
