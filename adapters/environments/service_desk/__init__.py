"""The service desk: requests in free words, three agents with tools and dialects of their own; the demo's second world.

`grammar` is how customers write, `agents` the tools and how each agent's are answered, `desk` the world, `environment`
puts it behind the Protocols. Who knows the right turns, and shows them to the warm start, is not in the product
(`tests/warmstart`).
"""

from adapters.environments.service_desk.agents import Drift
from adapters.environments.service_desk.environment import ServiceDesk, ServiceEpisode

__all__ = ["Drift", "ServiceDesk", "ServiceEpisode"]
