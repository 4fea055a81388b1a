"""`Cursor`: where the learner stands, and what it said last. Pure; `checkpoints` writes it down.

versions on disk   0 <- 1 <- 2 <- 3      4 is the next number, whatever its parent
chain              0 <- 1                cut by going back from 3 to 1; 1 is the head
"""

import msgspec

from actors.messages import Answer

CHAIN = 64
"""Versions of the present line that are remembered; what is older is stale under any setting."""
REPLIES = 8
"""Answers that are remembered word for word. Records come one at a time: what a kill left without its ack is the last
one, or the one before."""
REMEMBERED = 4096
"""Orders remembered as done, so that one delivered again trains nothing twice: more than a broker does."""
SCHEMA = 1


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that made no version, less what the version's manifest tells."""

    answer: Answer
    created: float | None = None
    """Unix seconds; None for those of the version's manifest."""
    metrics: dict[str, float] = {}
    no_gradient: dict[str, str] = {}


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """How a version came of its parent, so that the update can be made again."""

    order: str
    """Id of the order."""
    parent: int
    seed: int
    """As the trainer was given it."""
    batch: str
    """sha256 of batch.safetensors."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where the learner stands."""

    schema: int = SCHEMA
    version: int
    """Newest version; this lies beside its memory."""
    chain: tuple[int, ...]
    """Versions that led to the weights that the next update starts from, the newest last; going back cuts it."""
    done: tuple[tuple[str, int], ...] = ()
    """Orders and directives that are done, the oldest first, and the head then."""
    replies: dict[str, Reply] = {}
    """What was answered to the last of them that made no version, the oldest first."""
    updates: int = 0
    """Updates that changed the weights, ever."""
    optimizer: str = ""
    """sha256 of the newest version's optimizer.safetensors, or over those of its shards; empty without."""
    made: Made | None = None
    """How the newest version came about; None if what it was trained with could not be found again."""
    since: int = 0
    """Updates from the newest full state to the newest version; 0 if its own lies beside it."""

    @property
    def head(self) -> int:
        """The version that the next update starts from."""
        return self.chain[-1]

    def finished(self, record: str) -> int | None:
        """The head when `record` was done, None if it was not."""
        return next((version for done, version in reversed(self.done) if done == record), None)

    def with_done(self, record: str, head: int, reply: Reply | None) -> "Cursor":
        """This, with `record` done when `head` was the head."""
        replies = {known: said for known, said in self.replies.items() if known != record}
        if reply is not None:
            replies[record] = reply
        return msgspec.structs.replace(
            self,
            done=(*self.done, (record, head))[-REMEMBERED:],
            replies=dict(list(replies.items())[-REPLIES:]),
        )


def cut(chain: tuple[int, ...], at: int) -> tuple[int, ...]:
    """`chain` up to `at`, which is in it."""
    return chain[: chain.index(at) + 1]
