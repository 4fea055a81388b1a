"""What takes in the calls of this machine's agents, in every daemon: spool and port are the machine's."""

import random

from actors.system.lifecycle import Task
from adapters.intake.otlp.calls import SpanSettings
from adapters.redaction import Redactor
from daemon.composition.resources import Resources
from daemon.ingest.otlp_receiver import IntakeSettings, OtlpIntake, agent_keys, intake_figures
from daemon.ingest.shipper import Shipper, alone, shipper_figures
from daemon.processes.tap_settings import redaction
from daemon.settings.reading import address
from daemon.settings.tables import Config
from daemon.tap.spool import OTLP, SpoolWriter


def capture(config: Config, parts: Resources) -> dict[str, Task]:
    """Tasks: what the tap spooled goes to the bus; agents' telemetry (OTLP) is the other way in."""
    shipper = Shipper(config.spool, parts.bus, rng=random.Random(f"{config.seed}-shipper"))
    parts.figures(shipper_figures, shipper)
    tasks = {"shipper": alone(config.spool, shipper.run)}
    if config.otlp.listen:
        host, port = address(config.otlp.listen, "otlp.listen")
        spans = SpanSettings(
            tenant_attribute=config.otlp.tenant_attribute, trace_is_trajectory=config.otlp.trace_is_run
        )
        settings = IntakeSettings(
            host=host, port=port, tls_cert=config.tap.tls_cert, tls_key=config.tap.tls_key, spans=spans
        )
        spool = SpoolWriter(config.spool / OTLP, int(config.limits.spool_gb * (1 << 30)))
        intake = OtlpIntake(
            settings, spool, redact=Redactor(redaction(config)).message, keys=agent_keys(config.keys),
            require_key=config.tap.require_key,
        )  # fmt: skip
        parts.figures(intake_figures, intake)
        tasks["intake"] = intake.run
    return tasks
