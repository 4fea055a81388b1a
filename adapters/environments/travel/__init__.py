"""The travel desk: a small procedural tool environment, the world in which the demo's agents work.

`desk` is the world, `environment` puts it behind the Protocols, `drift` changes its tools in mid-run. Who
knows the right actions, and shows them to the warm start, is not in the product (`tests/warmstart`).
"""

from adapters.environments.travel.drift import Drift
from adapters.environments.travel.environment import TravelDesk

__all__ = ["Drift", "TravelDesk"]
