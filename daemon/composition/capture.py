"""Capture in the daemon: what the tap spooled goes to the bus; agents' telemetry (OTLP) is the other way in."""

from adapters.redaction import Redactor
from daemon.composition.wiring import Wiring
from daemon.ingest.otlp_receiver import IntakeCollector, OtlpIntake, agent_keys
from daemon.ingest.shipper import Shipper, ShipperMetrics, alone
from daemon.tap.segments import spools


def capture(wiring: Wiring) -> None:
    """The shipper, and the OTLP receiver where `intake.otlp` wants it. In every daemon, not where one leads: spool and
    port are this machine's.

    Raises:
        ConfigError: the key file cannot be used.
    """
    config, parts = wiring.config, wiring.parts
    shipper = Shipper(
        spools(config.spool, config.tap.workers), parts.bus, settings=config.shipper,
        metrics=ShipperMetrics(parts.registry), rng=wiring.rng("shipper"),
    )  # fmt: skip
    wiring.supervisor.add("shipper", alone(config.spool, shipper.run))
    if config.intake.otlp:
        intake = OtlpIntake(
            config.intake, parts.bus, redact=Redactor(config.redaction).message,
            keys=agent_keys(config.keys), require_key=config.tap.door.require_key,
        )  # fmt: skip
        parts.registry.register(IntakeCollector(intake))
        wiring.supervisor.add("intake", intake.run)
