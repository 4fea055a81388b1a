"""Credit: from attributed trajectories to one advantage a step. Pure functions on numpy arrays.

BatchItems -> outcomes (`outcomes`, by `baselines`) and step labels (`adca`), apart, and states met
           (`anchors`)
           -> `assign`, with alpha by `schedule` -> Credits
"""

from learner.credit.assign import Credits, assign
from learner.credit.settings import CreditSettings

__all__ = ["CreditSettings", "Credits", "assign"]
