"""What the daemon's tasks share, opened before the first of them starts and closed after the last has ended."""

import os
import socket
import time
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry

from actors.store import Store, StoreError, StoreMisconfigured
from actors.store.leases import Lead
from actors.system import runtime
from actors.system.bus import Bus
from actors.system.metrics import SystemMetrics
from adapters.engines.vllm import VllmEngine
from adapters.weights import WeightSource
from adapters.weights.http import HttpPull
from daemon.api.listener import Listener
from daemon.collectors.figures import Figures, register_host
from daemon.composition import registry as adapters
from daemon.composition import values
from daemon.composition.engines import engine_clients
from daemon.composition.lead import given_back, lead_figures, sole_use
from daemon.errors import StartFailed
from daemon.processes.bus_connection import open_bus
from daemon.settings.control import reached_at
from daemon.settings.tables import SHADOW, Config
from daemon.upkeep.provenance import Provenance
from daemon.upkeep.weights import source, weights_figures

log = structlog.get_logger(__name__)
T = TypeVar("T")


class Resources:
    """What the actors share: store, bus, engines, weights, keys, metrics."""

    def __init__(
        self, config: Config, store: Store, bus: Bus, engines: dict[str, VllmEngine], weights: WeightSource,
        lead: Lead, closing: AsyncExitStack, registry: CollectorRegistry, metrics: SystemMetrics,
    ) -> None:  # fmt: skip
        self.config, self.store, self.bus, self.engines, self.weights = config, store, bus, engines, weights
        self.lead, self.registry, self.metrics = lead, registry, metrics
        self.shadow = engines[SHADOW]
        self.provenance, self.versions = Provenance(config.state), config.state / "versions"
        self._closing = closing
        self.listener = Listener(config, registry)
        register_host(self.registry, config.state)
        self.registry.register(Figures(lead_figures, lead))
        if isinstance(weights, HttpPull):
            self.registry.register(Figures(weights_figures, weights))

    def adapter(self, kind: str) -> Any:
        """The adapter of `kind` that the settings name, closed when the daemon ends; None if they name none."""
        wanted = values.adapter(self.config, kind)
        return self.closing(adapters.build(kind, wanted.name, wanted.options)) if wanted.name else None

    def closing(self, built: T) -> T:
        """`built`, closed when the daemon ends, if it can be."""
        close = getattr(built, "aclose", None)
        if close is not None:
            self._closing.push_async_callback(close)
        return built

    @classmethod
    async def open(cls, config: Config, host: runtime.Host, stack: AsyncExitStack) -> "Resources":
        """Open what must be open before the first actor starts."""
        stack.enter_context(sole_use(config.store_url))
        try:
            store = Store(config.store_url, clock=time.time, password_file=config.database.password_file)
            await store.open()
        except StoreMisconfigured as error:
            raise StartFailed(str(error)) from error
        except StoreError as error:
            remedy = "or set database.url to another" if config.database.url else f"it is in state_dir {config.state}"
            raise StartFailed(f"database.url: {error}; {remedy}") from error
        log.info("audit_head", sequence=store.audit_head.sequence, hash=store.audit_head.hash)
        stack.push_async_callback(store.aclose)
        # Two daemons may be given one name; their leases must not be taken for one another's.
        holder = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        lead = Lead(config.store_url, config.database.password_file, holder=holder, about=reached_at(config.control))
        await stack.enter_async_context(given_back(lead))
        store.written_by(lead)
        registry = CollectorRegistry()
        metrics = SystemMetrics(registry)
        bus = await open_bus(config, host, "daemon", metrics=metrics)
        stack.push_async_callback(bus.aclose)
        engines = engine_clients(config)
        for engine in engines.values():
            await stack.enter_async_context(engine)
        check = Provenance(config.state).manifest_check()
        weights, http = source(config.weights, config.state / "versions", keep=config.keep.versions, check=check)
        if http is not None:
            await stack.enter_async_context(http)
        return cls(config, store, bus, engines, weights, lead, stack, registry, metrics)
