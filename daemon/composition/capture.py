"""What takes in the calls of this machine's agents, in every daemon: spool and port are the machine's."""

import random
import time

from actors.system.lifecycle import Task
from adapters.redaction import Redactor
from daemon.api.tls import server_tls
from daemon.composition.resources import Resources
from daemon.ingest.otlp_receiver import OtlpIntake, intake_figures
from daemon.ingest.shipper import Shipper, alone, shipper_figures
from daemon.processes.tap_settings import redaction
from daemon.settings.reading import address
from daemon.settings.tables import Config
from daemon.tap.keys import KeyRing
from daemon.tap.spool import OTLP, SpoolWriter


def capture(config: Config, parts: Resources) -> dict[str, Task]:
    """Tasks: what the tap spooled goes to the bus; agents' telemetry (OTLP) is the other way in."""
    shipper = Shipper(config.spool, parts.bus, rng=random.Random(f"{config.seed}-shipper"))
    parts.figures(shipper_figures, shipper)
    tasks = {"shipper": alone(config.spool, shipper.run)}
    if config.otlp.listen:
        host, port = address(config.otlp.listen, "otlp.listen")
        intake = OtlpIntake(
            host, port, SpoolWriter(config.spool / OTLP, int(config.limits.spool_gb * (1 << 30))),
            redact=Redactor(redaction(config)).message,
            tls=server_tls(config.tap.tls_cert, config.tap.tls_key, section="tap"),
            keys=KeyRing(config.keys, clock=time.time) if config.keys else None, require_key=config.tap.require_key,
            tenant_attribute=config.otlp.tenant_attribute, trace_is_run=config.otlp.trace_is_run,
        )  # fmt: skip
        parts.figures(intake_figures, intake)
        tasks["intake"] = intake.run
    return tasks
