"""What torchrun starts on each rank: rank 0 does the job through a `Leader`, the others follow it.

A job gets the leader, its own directory and its arguments, and returns what can be written as JSON.
"""

import json
import sys
from pathlib import Path

import msgspec

from learner.batch import TrajectoryBatch
from learner.checkpoints import Checkpoints
from learner.errors import LearnerError
from learner.settings import LearnerSettings
from learner.trainers.verl import ranks
from learner.trainers.verl.files import local
from learner.update import Updater
from tests.unit.learner.maker import group, order
from tests.verl.rig import UPDATES, batch


def parity(leader, directory: Path, model: str, data: str) -> dict:
    """`UPDATES` updates on one batch file, the middle of it written and gone back to."""
    trainer = leader.open(Path(model), Path(model))
    rows = TrajectoryBatch.load(Path(data))
    log_probs = trainer.log_probs(rows).tolist()
    reports = []
    for i in range(UPDATES):
        if i == UPDATES // 2:
            write(trainer, directory / "middle")
        reports.append(trainer.update(rows, seed=i).metrics)
    write(trainer, directory / "end")
    own = [p for _, p in leader._own._parameters()]
    sizes = {
        "parameters": sum(p.numel() for p in own),
        "weights": sum(local(p).nbytes for p in own),
        "moments": sum(local(leader._own._engine.optimizer.state[p]["exp_avg"]).nbytes for p in own),
    }
    return {"log_probs": log_probs, "metrics": reports, "sizes": sizes}


def contract(leader, directory: Path, model: str) -> dict:
    """What else must hold on two ranks; see test_ranks.py."""
    found: dict = {}
    trainer = leader.open(Path(model), Path(model))
    few = batch(1, seed=5)
    found["few_steps"] = trainer.update(few, seed=0).steps
    write(trainer, directory / "few")

    trainer = leader.open(Path(model), Path(model))  # a second time, as after an error in the updater
    masked = batch(6, seed=6, masked=(0, 1, 2, 4, 5))
    found["masked_steps"] = trainer.update(masked, seed=0).steps
    write(trainer, directory / "masked")

    huge = msgspec.structs.replace(masked, advantages=masked.advantages * 1e38)
    report = trainer.update(huge, seed=1)
    found["huge"] = [report.steps, report.metrics["steps_nonfinite"]]
    write(trainer, directory / "huge")

    bad = msgspec.structs.replace(masked, advantages=masked.advantages * float("nan"))
    found["bad"] = failure(lambda: trainer.update(bad, seed=2))
    found["gone"] = failure(lambda: trainer.save_state(directory / "nowhere"))
    blocked = directory / "blocked"
    (blocked / "optimizer-00001-of-00002.safetensors").mkdir(parents=True)
    found["blocked"] = failure(lambda: trainer.save_state(blocked))
    found["lost"] = failure(lambda: trainer.restore(directory / "huge", directory / "nowhere"))
    found["after"] = trainer.update(masked, seed=3).steps
    return found


def everything(leader, directory: Path, model: str, data: str) -> dict:
    found = parity(leader, directory, model, data) | contract(leader, directory, model)
    return found | served(leader, directory, model)


def served(leader, directory: Path, model: str) -> dict:
    """Orders through the learner's own `Updater`, and a restart between them."""
    settings = msgspec.structs.replace(leader._settings, warm_start=model)
    versions = []
    for i in range(2):
        checkpoints = Checkpoints(directory / "state", keep=4, state_every=2)
        updater = Updater(settings, checkpoints, leader.open, clock=lambda: 100.0)
        found = updater.open()
        asked = order(directory, f"order{i}", group(version=found))
        outcome, again = updater.apply(asked), updater.apply(asked)
        checkpoints.versions.read(outcome.candidate.version, verify=True)
        versions.append([found, outcome.result, outcome.candidate.version, again.result])
    return {"served": versions}


def write(trainer, directory: Path) -> None:
    directory.mkdir(parents=True)
    trainer.save(directory)
    trainer.save_state(directory)


def failure(call) -> str:
    try:
        call()
    except (LearnerError, *ranks._AGREED) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text())
    directory = Path(job["directory"])
    settings = msgspec.json.decode((directory / "settings.json").read_bytes(), type=LearnerSettings)
    if ranks.is_follower():
        return ranks.follow(settings)
    leader = ranks.Leader(settings)
    result = {"parity": parity, "everything": everything}[job["job"]](leader, directory, **job["arguments"])
    leader.stop()
    (directory / "result.json").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
