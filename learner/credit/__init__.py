"""Credit: from attributed trajectories to one advantage a step. Pure functions on numpy arrays.

BatchItems -> outcome baseline (`baselines`) and step labels (`adca`), apart -> `assign` -> Credits
"""

from learner.credit.assign import Credits, assign
from learner.credit.baselines import Running
from learner.credit.settings import CreditSettings

__all__ = ["CreditSettings", "Credits", "Running", "assign"]
