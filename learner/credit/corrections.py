"""What a corrected outcome changes in the credit of a run that an update has learned from already.

The run trained with the advantage A(old). Now that its outcome is known better it should have had A(new), so it trains
once more with A(new) - A(old), each computed by the outcome channel among the batch that it comes with. Step labels are
not part of it: no judge has changed his mind.

How exact that is depends on the baseline, for A(old) is computed again and not remembered:

* estimate: exact with a fixed deviation, since what was expected cancels; else up to how far the estimate has moved;
* leave-one-out, neighbours, sandbox attempts, `reinforce++`: the difference that the outcome makes in today's company,
  not in that of the batch which it was in first. It has the right sign, and the size of an advantage in that batch.

A correction is company to nobody: its outcome was, once. In the estimates of other runs it counts as what it is now.
"""

from collections.abc import Sequence

import numpy as np

from actors.messages import BatchItem
from learner.credit.baselines import Floats
from learner.credit.outcomes import outcome_channel
from learner.credit.settings import CreditSettings


def difference(
    items: Sequence[BatchItem],
    counted: Sequence[int],
    place: int,
    outcomes: Floats,
    settings: CreditSettings,
) -> float:
    """The outcome's advantage of the correction `items[place]`, less what it was with the outcome that it corrects.

    Args:
        items: the batch, n.
        counted: indices of those whose outcome can be used, without corrections.
        outcomes: `(n,)`, the newest.
    """
    before = items[place].corrects
    assert before is not None
    company = sorted([*counted, place])
    worth: list[float] = []
    for outcome in (float(outcomes[place]), before):
        told = np.array(outcomes)
        told[place] = outcome
        channel = outcome_channel(items, company, told, settings)
        # What is left out teaches nothing.
        worth.append(0.0 if place in channel.skipped else float(channel.advantages[place]))
    return worth[0] - worth[1]
