"""What a key looks like and what scopes there are, for whoever needs no more of keys: a command line that must start at
once in an emergency."""

from typing import Literal

PREFIX = b"evk_"

Scope = Literal["agent", "environment", "read", "content", "operate", "teach", "admin"]
"""`agent` opens the agents' port, `environment` what `evolved environments serve` serves, the others the operators'
side: the control API and the tap's admin port. `daemon.api.scopes` says which route takes which."""
