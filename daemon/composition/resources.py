"""What the daemon's tasks share, opened before the first of them starts and closed after the last has ended."""

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from actors.store import Store, StoreError, StoreMisconfigured
from actors.store.leases import Lead
from actors.system import runtime
from actors.system.metrics import SystemMetrics
from daemon.api.listener import Listener
from daemon.composition import values
from daemon.composition.engines import engine_clients
from daemon.composition.lead import give_back, lead_figures, sole_use
from daemon.errors import StartFailed
from daemon.figures import Figures, register_host
from daemon.processes.bus_connection import open_bus
from daemon.settings.control import reached_at
from daemon.settings.tables import SHADOW, Config
from daemon.upkeep.provenance import Provenance
from daemon.upkeep.weights import source

log = structlog.get_logger(__name__)
T = TypeVar("T")


class Resources:
    """What the actors share: store, bus, engines, weights, keys, metrics. To be opened before the first of them starts;
    what it opens is closed with `closing`."""

    def __init__(self, config: Config, closing: AsyncExitStack) -> None:
        self.config, self._closing = config, closing
        self.provenance, self.versions = Provenance(config.state), config.state / "versions"
        self.registry = CollectorRegistry()
        self.metrics = SystemMetrics(self.registry)
        register_host(self.registry, config.state)

    async def open(self, host: runtime.Host) -> None:
        """The store first, then who leads may be asked, then the way to bus and engines."""
        config, closing = self.config, self._closing
        closing.enter_context(sole_use(config.store_url))
        self.store = await self._opened_store()
        # Two daemons may be given one name; their leases must not be taken for one another's.
        holder = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        about = reached_at(config.control)
        self.lead = Lead(config.store_url, config.database.password_file, holder=holder, about=about)
        closing.push_async_callback(give_back, self.lead)
        self.store.lead = self.lead
        self.figures(lead_figures, self.lead)
        self.bus = await open_bus(config, host, "daemon", metrics=self.metrics)
        closing.push_async_callback(self.bus.aclose)
        self.engines = engine_clients(config)
        for engine in self.engines.values():
            await closing.enter_async_context(engine)
        self.shadow = self.engines[SHADOW]
        self.serving = {name: self.engines[name] for name in config.serving}
        check = self.provenance.manifest_check()
        self.weights, http = source(config.weights, self.versions, keep=config.keep.versions, check=check)
        if http is not None:
            await closing.enter_async_context(http)
        self.listener = Listener(config, self.registry)

    async def _opened_store(self) -> Store:
        config = self.config
        try:
            store = Store(config.store_url, clock=time.time, password_file=config.database.password_file)
            await store.open()
        except StoreMisconfigured as error:
            raise StartFailed(str(error)) from error
        except StoreError as error:
            remedy = "or set database.url to another" if config.database.url else f"it is in state_dir {config.state}"
            raise StartFailed(f"database.url: {error}; {remedy}") from error
        log.info("audit_head", sequence=store.audit_head.sequence, hash=store.audit_head.hash)
        self._closing.push_async_callback(store.aclose)
        return store

    def figures(self, read: Callable[[T], Iterable[Metric]], source: T) -> None:
        """Show what `read` finds in `source`."""
        self.registry.register(Figures(read, source))

    def adapter(self, kind: str) -> Any:
        """The adapter of `kind` that the settings name, closed when the daemon ends; None if they name none."""
        return self.closing(values.built(self.config, kind))

    def closing(self, built: T) -> T:
        """`built`, closed when the daemon ends, if it can be."""
        close = getattr(built, "aclose", None)
        if close is not None:
            self._closing.push_async_callback(close)
        return built
