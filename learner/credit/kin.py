"""With whose past a run is compared: names of its cluster, its agent and its tenant in one dict of running means.

With goals in free words nearly every goal is a cluster of its own, and a first run has no past to be measured against.
What its agent has scored so far is the next best thing, and then what its tenant has.
"""

from actors.messages import Attributed, agent_of

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


def pooled(name: str) -> bool:
    """Whether a name of `kin` is an agent's or a tenant's: few of them, each shared by many goals."""
    return name.startswith((AGENT, TENANT))
