"""Heads that come again: on a connection that is kept alive, what follows mostly begins with the same bytes.

llhttp reads a head and judges it; the next message that begins with those very bytes, but for the digits of its length,
would be read and judged in the same way, so that is not done twice. Whatever differs in any other byte, has its body in
chunks, or does not come whole and alone in one piece is llhttp's again.
"""

from typing import Generic, TypeVar

H = TypeVar("H")
_LENGTH = b"\r\ncontent-length:"


class HeadCache(Generic[H]):
    """A head that was read, and its bytes with the length left open."""

    def __init__(self, before: bytes, after: bytes, head: H) -> None:
        """All bytes up to the length's digits, and all behind them, the blank line included."""
        self._before, self._after, self.head = before, after, head
        self._size = len(before) + len(after) + 1
        """Of a head, digits and all: the next one is mostly as long as the last."""

    @classmethod
    def of(cls, data: bytes, length: int, head: H) -> "HeadCache[H] | None":
        """`head` of the message that `data` is, with `length` as llhttp has read them. None if there is more or less in
        `data`, or its length does not stand in one place, in the usual way.
        """
        end = data.find(b"\r\n\r\n") + 4
        if end + length != len(data):
            return None
        lower, line = data[:end].lower(), b"%b %d\r\n" % (_LENGTH, length)
        place = lower.find(line)
        if place < 0 or lower.count(_LENGTH) != 1:
            return None
        return cls(data[: place + len(_LENGTH) + 1], data[place + len(line) - 2 : end], head)

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is one whole message with this head; else None. The head that `data` must begin with is
        written out from how long `data` is, so one that says anything else, or in another way, is not taken for it.
        """
        size = self._size
        head = b"%b%d%b" % (self._before, len(data) - size, self._after)
        if len(head) != size:
            # Another number of digits than last time.
            size = self._size = data.find(b"\r", len(self._before)) + len(self._after)
            head = b"%b%d%b" % (self._before, len(data) - size, self._after)
        return data[size:] if len(head) == size and data.startswith(head) else None
