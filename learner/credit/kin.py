"""With whose past a run is compared: names of its cluster, its agent and its tenant in one dict of running means.

With goals in free words nearly every goal is a cluster of its own, and a first run has no past to be measured against.
What its agent has scored so far is the next best thing, and then what its tenant has.
"""

from collections.abc import Mapping

from actors.messages import Attributed, agent_of, concerns

AGENT = "agent:"
TENANT = "tenant:"
CLUSTER = "cluster:"
"""Only in front of a cluster that begins like one of the three, see `kin`."""


def kin(attributed: Attributed) -> tuple[str, str, str]:
    """Names that the outcome is remembered under, the closest first: cluster, agent, tenant.

    No two of them collide, whatever an attributor calls its clusters. Those of `actors.kinds.clusters` have no colon;
    one that begins like a name of ours gets a prefix of its own.
    """
    cluster = attributed.cluster
    if cluster.startswith((AGENT, TENANT, CLUSTER)):
        cluster = CLUSTER + cluster
    run = attributed.trajectory
    return cluster, AGENT + agent_of(run), TENANT + run.tenant


def forgotten(name: str, whose: str, drift: Mapping[str, str]) -> bool:
    """Whether what is remembered under `name` says nothing any more after a drift.

    Args:
        whose: the agent whose outcomes alone are in it, as `kin` names it, else empty.
        drift: details of the directive.
    """
    if name.startswith(TENANT):
        return name.removeprefix(TENANT) == drift.get("tenant") or not drift.get("tenant")
    agent = name if name.startswith(AGENT) else whose
    return not agent or concerns(drift, agent.removeprefix(AGENT))


def pooled(name: str) -> bool:
    """Whether a name of `kin` is an agent's or a tenant's: few of them, each shared by many goals."""
    return name.startswith((AGENT, TENANT))
