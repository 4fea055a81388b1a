"""What serves, what was promoted and waits to, and which lines of versions were ended: from the books alone. Pure."""

from collections.abc import Sequence

import msgspec

from actors.gate.panel import Comparison
from actors.messages import Directive, Serving, Verdict
from actors.versions.desired_state import number

_ENDED = {"rollback": "rolled back", "rebase": "given up"}
ENDS = tuple(_ENDED)
"""Directives that end a line of versions, or have the learner follow what serves."""
_LINE = "abandoned_ancestor"
"""Measurement of a candidate that was not tried: the version of its line that was rolled back or given up."""


class Standing(msgspec.Struct, frozen=True):
    """The books, each with the newest first."""

    served: list[Serving]
    """What engines that serve users had when they were first seen, and what was brought in."""
    orders: list[Directive]
    """Of the kinds `ENDS`."""
    promoted: Verdict | None
    """The newest verdict that promotes."""
    swapped: float
    """When the last swap ended, also one that was refused."""

    @property
    def serves(self) -> int:
        """What serves; what everything starts from if nobody has said."""
        return self.served[0].version if self.served else 0

    @property
    def awaited(self) -> Verdict | None:
        """The promotion that the swapper has neither carried out nor given up yet."""
        # What waits for a trial is dropped with it.
        answers = [self.swapped, *(one.created for one in self.orders if one.kind == "rollback")]
        return self.promoted if self.promoted is not None and max(answers) < self.promoted.created else None

    def condemned(self, line: Sequence[int]) -> Comparison | None:
        """A rejection if a version of `line`, from a candidate back to what serves, was rolled back or given up."""
        orders = (order for order in reversed(self.orders) if "follow" not in order.details)
        ended = {number(order, "version"): order for order in orders}
        since = self.served[0].since if self.served else 0.0
        for version in line:
            order, serves = ended.get(version), version == self.serves
            # What an operator brought back since serves, and so may what comes of it.
            if order is not None and not (serves and since > order.created):
                reason = f"comes of v{version}, which was {_ENDED[order.kind]}"
                return Comparison("reject", reason, {_LINE: float(version)})
            if serves:
                return None
        return None

    def said(self, order: str) -> bool:
        """Whether there is an order with this id."""
        return any(one.id == order for one in self.orders)
