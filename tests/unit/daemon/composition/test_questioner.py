"""The questioner's figures can be scraped, each drop with its reason."""

import random

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors.tasks.questioner.settings import QuestionerSettings
from adapters.embedders.hashing import HashingEmbedder
from adapters.environments.travel import TravelDesk
from daemon.collectors.figures import Figures
from daemon.composition.questioner import questioner, questioner_figures
from daemon.settings.config import Config
from tests.support.fakes import FakeEngine
from tests.unit.actors.tasks.questioner.test_actor import Pool, Store, Turns

pytestmark = pytest.mark.anyio


async def test_what_it_did_is_counted():
    config = msgspec.structs.replace(Config(), questioner=QuestionerSettings(enabled=True))
    pool = Pool()
    producer = questioner(
        config, store=Store(), sink=pool, environment=TravelDesk(), shadow=FakeEngine(), embedder=HashingEmbedder(),
        wording=None, rng=random.Random(0),
    )  # fmt: skip
    registry = CollectorRegistry()
    registry.register(Figures(questioner_figures, producer))
    await producer.start()
    await producer.run(Turns(2))
    text = generate_latest(registry).decode()
    assert f'evolved_questioner_events_total{{what="kept"}} {float(len(pool.tasks))}' in text
    assert 'evolved_questioner_dropped_total{reason="trivial"}' in text
    assert "evolved_questioner_worlds 2.0" in text


def test_it_is_off_unless_it_is_switched_on():
    assert not Config().questioner.enabled
