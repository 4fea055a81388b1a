"""What learning needs: adapters, words that are kept, a trainer, and versions that may be loaded."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from actors.messages import MANIFEST
from actors.messages.signing import BadKey
from actors.ports.errors import CheckpointRefused, WeightsUnavailable
from actors.ports.models import words_alone
from adapters.weights import check_directory
from daemon.cli.control_client import control_client
from daemon.cli.status import fetch
from daemon.composition import values
from daemon.composition.checks import NAMED, faults
from daemon.doctor.base import CALL_SECONDS, Check, Finding, NotLooked, Scene, aside, fault, warning
from daemon.errors import ConfigError, ControlUnreachable
from daemon.processes.tap_settings import strict
from daemon.settings.control import where
from daemon.upkeep.install import SYSTEM
from daemon.upkeep.provenance import Provenance

_NEWEST = 20
"""Versions that are looked at."""


async def _adapters(scene: Scene) -> Sequence[Finding]:
    found = await aside(lambda: list(faults(scene.config)))
    return [fault(one, "change it there, or put its key where it says; `evolved config` looks again") for one in found]


async def _trainer(scene: Scene) -> Sequence[Finding]:
    """Only where the learner is to run on this machine."""
    if not (scene.root / SYSTEM / "evolved-learner.service").exists() and not scene.config.model.path:
        raise NotLooked("no learner on this machine")
    path, found = scene.config.model.path, list[Finding]()
    if path and not Path(path).is_dir():
        found.append(fault(f"model.path {path}: no such directory", "set it to a Hugging Face checkpoint"))
    if await aside(importlib.util.find_spec, "torch") is None:
        return [*found, fault("the learner has no torch here", "pip install 'evolved[learner]' in this environment")]
    if scene.config.train.trainer == "verl" and await aside(importlib.util.find_spec, "verl") is None:
        found.append(
            fault('train.trainer = "verl", and verl is not here', 'see docs/several-machines.md, or set "native"')
        )
    return found


async def _versions(scene: Scene) -> Sequence[Finding]:
    versions = scene.config.state / "versions"
    check = Provenance(scene.config.state).manifest_check()

    def look() -> tuple[int, list[str]]:
        numbers = sorted(int(path.name[1:]) for path in versions.glob("v[0-9]*") if path.name[1:].isdigit())
        bad: list[str] = []
        for number in numbers[-_NEWEST:]:
            try:
                check_directory(versions / f"v{number:06d}", version=number, wanted="", check=check)
            except CheckpointRefused as error:
                bad.append(str(error))
        return len(numbers[-_NEWEST:]), bad

    if not versions.is_dir():
        raise NotLooked("there is no version yet")
    try:
        total, bad = await aside(look)
    except (WeightsUnavailable, BadKey) as error:
        return [fault(str(error), "bring the learner's public key: evolved provenance trust learner FILE")]
    if not bad:
        return []
    return [
        fault(
            f"{len(bad)} of the {total} newest versions in {versions} will not be loaded: {bad[-1]}",
            f"see that each has its {MANIFEST} and signature; evolved provenance show; evolved provenance sign",
        )
    ]


async def _agents(scene: Scene) -> Sequence[Finding]:
    """By agent, as the daemon that runs says, where more than a few of its calls cannot be trained on."""
    try:
        status = await aside(fetch, where(scene.config.control), "/api/status", CALL_SECONDS)
    except (ControlUnreachable, ConfigError) as error:
        raise NotLooked("the daemon does not answer") from error
    learning = status.get("learning") or {}
    if not learning:
        raise NotLooked("the daemon is still starting")
    return [
        warning(f"{agent['label']}: calls that train: {agent['calls_sentence']}", agent["calls_remedy"])
        for agent in learning.get("agents", [])
        if agent["calls_remedy"] and not agent["calls_remedy"].startswith("nothing")
    ]


async def _progress(scene: Scene) -> Sequence[Finding]:
    """As `/readyz` has it: actors that do not get on, queues whose head does not move."""

    def ask() -> dict[str, Any]:
        with control_client(where(scene.config.control), CALL_SECONDS) as client:
            return dict(client.get("/readyz").json())

    try:
        told = await aside(ask)
    except (httpx.HTTPError, ConfigError, ValueError) as error:
        raise NotLooked("the daemon does not answer") from error
    if told.get("status") != "stuck":
        return []
    return [
        fault(
            f"{', '.join(told['waits_for'])} of the daemon: no progress",
            "`evolved status` says what an actor waits for; a queue's head that stands still without a reason: "
            "systemctl restart evolved-daemon",
        )
    ]


async def _lessons(scene: Scene) -> Sequence[Finding]:
    config = scene.config
    if not config.lessons.per_prompt:
        return []
    try:
        made = await aside(values.built, config, "embedder")
    except ConfigError as error:
        raise NotLooked("the embedder cannot be made; the check of the adapters says why") from error
    close = getattr(made, "aclose", None)
    if close is not None:
        await close()
    if not words_alone(made):
        return []
    return [
        warning(
            "lessons and tools are found by their words alone: of two ways to say one thing that share no word, one "
            "does not find what the other taught",
            "name an embedding server: [embeddings] url and model; of requests "
            "worded otherwise than their lesson it found 64 % where words found 53 % (CLINC150, docs/measured.md)",
        )
    ]


async def _strict(scene: Scene) -> Sequence[Finding]:
    if not strict(scene.config):
        return []
    # Of these alone the work is to read what was said.
    readers = ("judge", "extractor", "rewriter", "wording", "grader")
    named = [setting for kind, setting in NAMED.items() if kind in readers and values.adapter(scene.config, kind)[0]]
    return [
        warning(
            'redact.kinds has "text": no run of production is trained on, no lesson is learned, and placeholders are '
            f"all that {', '.join(named) or 'a judge'} would read",
            "to monitor alone, this is as it should be; to learn, take it out and name what must go"
            " under redact.patterns",
        )
    ]


LEARNING = (
    Check("strict mode", "the words of runs are kept, which learning needs", _strict),
    Check("adapters", "judge, embedder, sandbox and the rest are installed and have their keys", _adapters),
    Check("lessons", "lessons are found by what they mean, not by their words alone", _lessons),
    Check("trainer", "torch, a GPU and a warm start, where the learner is to run here", _trainer),
    Check("versions", "the newest versions can be read and are signed", _versions),
    Check("progress", "what the daemon needs gets on, and the head of each queue moves", _progress),
    Check("agents", "the calls of each agent can be trained on", _agents),
)
