"""Deployment in the daemon: the swapper brings versions in, the kill switch and operators' orders overrule it."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

from actors.deployment.swapper import Swapper
from actors.kinds.kinds import Kinds
from actors.messages import Directive
from actors.system.bus import outgoing
from actors.system.streams import POLICY_DIRECTIVE
from daemon.api.killswitch import ORIGIN, KillSwitch
from daemon.api.orders import Orders
from daemon.collectors.fleet import fleet_figures
from daemon.composition.cluster import reading_along
from daemon.composition.resources import Resources
from daemon.composition.wiring import LONG, Wiring
from daemon.settings.config import SHADOW, serving_engines, tap_settings
from daemon.upkeep.swap_intents import SwapIntents
from daemon.upkeep.swaps import Swaps


class Deployment(NamedTuple):
    """Who says what serves."""

    swapper: Swapper
    kill: KillSwitch
    orders: Orders


def swap_runner(wiring: Wiring) -> Swaps:
    """What carries out swaps, for the gate on the shadow engine, for the swapper on those that serve."""
    config, parts = wiring.config, wiring.parts
    return Swaps(
        config.state / "swaps", parts.engines, inline=frozenset({SHADOW}), weights=parts.weights,
        intents=SwapIntents(parts.store.leases, config.state / "swaps", parts.member.holder),
        seconds=config.swapper.swap_timeout, epoch=lambda: wiring.leadership.epoch,
    )  # fmt: skip


def deployment(wiring: Wiring, swaps: Swaps, kinds: Kinds) -> Deployment:
    """Promoted versions to the engines that serve."""
    config, parts = wiring.config, wiring.parts
    tap = tap_settings(config)
    key, keys = parts.provenance.key("gate"), parts.provenance.trusted("gate")
    kill = KillSwitch(config.state)
    swapper = Swapper(
        config.swapper, store=parts.store, engines={name: parts.engines[name] for name in serving_engines(config)},
        runner=swaps, versions=parts.versions, key=key, keys=keys, clock=wiring.clock, times=wiring.times,
        routes=Path(tap.routes_file), weights={one.name: one.weight for one in tap.upstreams}, halted=kill.reason,
        kinds=kinds,
    )  # fmt: skip
    wiring.figures(fleet_figures, swapper)
    wiring.act(swapper, LONG, meanwhile=reading_along(swapper.look, swapper.look, config.swapper.reconcile_seconds))
    orders = Orders(
        store=parts.store, fleet=lambda: swapper.fleet, kill=kill, send=partial(_send, parts), key=key, keys=keys,
        clock=wiring.clock,
    )  # fmt: skip
    watch = partial(kill.watch, store=parts.store, order=partial(orders.issue, origin=ORIGIN))
    wiring.supervisor.add("kill_switch", wiring.leadership.holds(watch))
    return Deployment(swapper, kill, orders)


async def _send(parts: Resources, directive: Directive) -> None:
    await parts.store.save([directive])
    await parts.bus.publish([outgoing(POLICY_DIRECTIVE, directive)])
