"""The control API in the daemon: who it asks, and what it passes on."""

from collections.abc import Sequence
from functools import partial

from starlette.routing import Route

from actors.credit.attributor import Attributor
from actors.curation.curator import Curator
from actors.experience.navigator import Navigator
from actors.messages import Experience
from actors.system.bus import outgoing
from actors.system.streams import EXPERIENCE_LESSON
from adapters.redaction import Redactor
from daemon.api.control import Control
from daemon.api.control_task import control_task
from daemon.api.experience import ExperienceApi
from daemon.api.run_story import RunStoryApi
from daemon.api.trajectories import TrajectoryApi
from daemon.api.versions import VersionApi
from daemon.composition.cluster import leader_view
from daemon.composition.deployment import Deployment
from daemon.composition.monitoring import Monitoring
from daemon.composition.resources import Resources
from daemon.composition.wiring import Wiring
from daemon.experience.forgetting import Forgetter
from daemon.experience.service import ExperiencePool
from daemon.settings.config import serving_engines


def api(
    wiring: Wiring,
    *,
    attributor: Attributor,
    navigator: Navigator,
    curator: Curator,
    deployed: Deployment,
    monitored: Monitoring,
    forgetter: Forgetter,
    routes: Sequence[Route],
) -> None:
    """JSON, `/metrics` and the dashboard."""
    config, parts, supervisor = wiring.config, wiring.parts, wiring.supervisor
    pool = ExperiencePool(
        store=parts.store, search=navigator.search, redact=Redactor(config.redaction).text, send=partial(_teach, parts),
        renew=wiring.invalidation.ask, clock=wiring.clock,
    )  # fmt: skip
    control = partial(
        Control, store=parts.store, registry=parts.registry, actors=lambda: supervisor.state().actors,
        orders=deployed.orders, curator=lambda: curator.figures, sentinel=monitored.sentinel.status,
        fleet=lambda: deployed.swapper.fleet, halted=deployed.kill.reason, learning=monitored.learning.status,
        serving=tuple(serving_engines(config)), judge=attributor.report,
        leader=partial(leader_view, wiring.leadership, parts.member),
        routes=[
            *ExperienceApi(pool, forgetter).routes(), *routes, *TrajectoryApi(parts.store).routes(),
            *RunStoryApi(parts.store).routes(),
            *VersionApi(parts.store, parts.provenance.trusted("gate"), parts.versions).routes(),
        ],
    )  # fmt: skip
    supervisor.add("control", control_task(config, parts, supervisor, control))


async def _teach(parts: Resources, lessons: Sequence[Experience]) -> None:
    await parts.bus.publish([outgoing(EXPERIENCE_LESSON, lesson) for lesson in lessons])
