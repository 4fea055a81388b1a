"""Whose signatures count: the key files below `state_dir`, as keys.

On one machine the learner and the gatekeeper make their keys when they first start; a learner on another node shows its
public key (`evolved provenance show learner`), and the daemon's takes it in (`evolved provenance trust learner FILE`).
"""

from pathlib import Path

from actors.messages.signing import BadKey, PublicKeys, SigningKey
from actors.ports.errors import WeightsUnavailable
from adapters.weights import Check
from daemon.errors import ConfigError

ROLES = ("learner", "gate")
"""The learner signs the manifest of each version, the gate its verdicts; each makes its key, where it runs, on first
use."""


class Provenance:
    """The keys of one node, below its `state_dir`."""

    def __init__(self, state: Path) -> None:
        self._keys = state / "keys"

    def private_path(self, role: str) -> Path:
        """Where the private key of `role` ("learner", "gate") is, or would be."""
        return self._keys / role / "private.pem"

    def trusted(self, role: str) -> PublicKeys:
        """The public keys that count for `role`; the file need not be there yet."""
        return PublicKeys(self._public(role))

    def key(self, role: str) -> SigningKey:
        """The private key of `role`, made on first use."""
        try:
            return SigningKey.load(self.private_path(role), self._public(role))
        except BadKey as error:
            raise ConfigError(f"{error}") from error

    def _public(self, role: str) -> Path:
        return self._keys / f"{role}-public.pem"

    def manifest_check(self) -> Check:
        """What says whether a manifest was signed by a learner that is trusted; see `adapters.weights.Check`."""
        keys = self.trusted("learner")

        def check(content: bytes, signature: str) -> str:
            try:
                keys.keys()
            except BadKey as error:
                # No fault of the version: it is looked at again once there are keys.
                raise WeightsUnavailable(f"{error}") from error
            return keys.problem("manifest", content, signature)

        return check
