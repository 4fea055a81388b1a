"""Whose signatures count: the key files that the settings name, as keys.

On one machine the learner and the gatekeeper make their keys when they first start; a learner on another node shows its
public key (`evolved provenance show learner`), and the daemon's takes it in (`evolved provenance trust learner FILE`).
"""

from pathlib import Path

import msgspec

from actors.messages.signing import BadKey, PublicKeys, SigningKey
from actors.ports.errors import WeightsUnavailable
from adapters.weights import Check
from daemon.errors import ConfigError


class ProvenanceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that versions and verdicts are signed and checked with; paths are below `state_dir` unless absolute."""

    learner_key: str = "keys/learner/private.pem"
    """Signs the manifest of each version; needed where the learner runs, made there on first use."""
    learner_trusted: str = "keys/learner-public.pem"
    """Public keys, one after the other, of learners whose versions may be loaded."""
    gate_key: str = "keys/gate/private.pem"
    """Signs verdicts; needed where the daemon runs, made there on first use."""
    gate_trusted: str = "keys/gate-public.pem"
    """Public keys of gatekeepers whose verdicts count."""


ROLES = ("learner", "gate")


class Provenance:
    """The keys of one node."""

    def __init__(self, settings: ProvenanceSettings, state: Path) -> None:
        self._private = {"learner": state / settings.learner_key, "gate": state / settings.gate_key}
        self._trusted = {"learner": state / settings.learner_trusted, "gate": state / settings.gate_trusted}

    def private_path(self, role: str) -> Path:
        """Where the private key of `role` ("learner", "gate") is, or would be."""
        return self._private[role]

    def trusted(self, role: str) -> PublicKeys:
        """The public keys that count for `role`; the file need not be there yet."""
        return PublicKeys(self._trusted[role])

    def key(self, role: str) -> SigningKey:
        """The private key of `role`, made on first use."""
        try:
            return SigningKey.load(self._private[role], self._trusted[role])
        except BadKey as error:
            raise ConfigError(f"{error}") from error

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
