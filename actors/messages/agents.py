"""Whose run it was: the agent, as far as a trajectory tells."""

from collections.abc import Mapping

from actors.messages.base import derived_id
from actors.messages.trajectory import Trajectory


def agent_of(run: Trajectory) -> str:
    """Name of the agent: its tenant and the role that acted first, a digest of system prompt and tools.

    Where no role is known (the sandbox, old records) the digest is of the tool list alone.
    """
    role = run.steps[0].role if run.steps else ""
    return f"{run.tenant}/{role or derived_id('tools', run.tools)[:8]}"


def concerns(drift: Mapping[str, str], agent: str) -> bool:
    """Whether a drift is `agent`'s; one that names nobody is everybody's.

    Args:
        drift: details of the directive: `agent`, names with commas between them, or `tenant` alone.
    """
    names, tenant = drift.get("agent", ""), drift.get("tenant", "")
    return agent in names.split(",") if names else not tenant or agent.startswith(f"{tenant}/")


def called(agent: str) -> str:
    """Tenant and label of an agent's name, without the digest.

    The digest is another where the prompt begins otherwise (the day of the week), or, without a prompt, where the tools
    are others; the label is the same.
    """
    tenant, _, who = agent.rpartition("/")
    label, digest, _ = who.partition("#")
    return f"{tenant}/{label if digest else ''}"
