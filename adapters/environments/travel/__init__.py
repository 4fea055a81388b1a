"""The travel desk: a small procedural tool environment, the world in which the demo's agents work.

`desk` is the world, `environment` puts it behind the Protocols, `drift` changes its tools in mid-run. `oracle` knows
the right actions; only `demonstrations` (what the warm start learnt from) and tests use it, no running part of evolved.
"""

from adapters.environments.travel.drift import Drift
from adapters.environments.travel.environment import TravelDesk

__all__ = ["Drift", "TravelDesk"]
