"""Credit: from attributed trajectories to one advantage a step. Pure functions on numpy arrays.

BatchItems -> outcomes (`outcomes`) and step labels (`adca`, with `roles`), apart -> `assign` -> Credits
"""

from learner.credit.assign import Credits, CreditSettings, assign

__all__ = ["CreditSettings", "Credits", "assign"]
