"""The swap: the section from pause to resume, as a small program that outlives the daemon.

    python -m adapters.engines.swap JOB          JOB is a `SwapJob` in JSON

prepare (check, while the old version serves) -> pause (keep, cache dropped) -> load -> label -> resume -> canary, and
if the canary fails, pause to resume with the last good version. Resume runs in a `finally` with a deadline of its own:
agents wait behind a pause, so nothing that goes wrong here may leave one behind. The program runs in a session of its
own and writes what came of it to a file; a daemon that died meanwhile collects it (`collect`), and finishes the work of
a program that was killed too.

Three files carry a swap: RESULT (the outcome, appears whole), RESULT.job (what is being done, removed with the result)
and RESULT.lock (held by the program while it lives: one swap an engine at a time).
"""

import fcntl
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import structlog

from adapters.engines import Engine
from adapters.engines.client import Deadlines
from adapters.engines.vllm import VllmEngine
from adapters.errors import CheckpointRefused, EngineError, EngineUnavailable, SwapFailed

_log = structlog.get_logger(__name__)
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
"""Variables that the program sees."""
_RESUME_ATTEMPTS = 5
_LEAST_GREEDY = -20.0
"""Nats that the likeliest of V tokens has at the least: -ln V. vLLM writes -9999 where it computed NaN."""
_LOOK_SECONDS = 0.05
_BUSY = 4
"""Exit status: somebody else swaps this engine."""
KEY_VARIABLE = "EVOLVED_ENGINE_KEY"
"""Variable with the engine's API key, if it has one: arguments are for everybody to read."""
CANARY_FILE = "canary.json"
"""In a version directory: a `Canary` with the learner's own log-probs."""


class Canary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens whose log-probs tell whether the weights that serve are those that were meant."""

    ids: list[int]
    """At least two."""
    logprobs: list[float]
    """Of `ids[1:]`, each given those before it, nats, as the learner computes them."""


class SwapJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done."""

    engine: str
    """URL."""
    path: str
    """Version directory to load; the engine must be able to read it too."""
    version: int
    result: str
    """File for the outcome."""
    manifest: str = ""
    """sha256 that manifest.json must have: what was verified before is what is loaded. Empty for any."""
    last_good: str = ""
    """Version directory to go back to; also what the new one must look like. Empty if there is none."""
    last_version: int = -1
    deadline: float = 120.0
    """Seconds for everything up to resume; going back may take as long again."""
    tolerance: float = 0.05
    """Largest difference of a canary log-prob from the learner's, nats."""
    epoch: int = 0
    """Of the lease under which this is done; an engine refuses one that is smaller than the greatest it has seen."""


class SwapOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    result: Literal["swapped", "refused", "rolled_back", "unreachable", "failed"]
    """refused: what served was never touched or is untouched; rolled_back: the new weights were loaded, the last good
    ones are back; unreachable: the engine did not answer, or not as it must, and nothing was done; failed: neither
    could be confirmed."""
    version: int
    """What the engine serves now, -1 if unknown."""
    asked: int = -1
    """What it was asked to serve."""
    paused_seconds: float = 0.0
    """From pause to resume."""
    total_seconds: float = 0.0
    reason: str = ""
    finished: float = 0.0
    """Unix seconds."""


async def perform(job: SwapJob, engine: Engine) -> SwapOutcome:
    """Do the whole swap; never raises an EngineError."""
    started = time.monotonic()
    path, last_good = Path(job.path), Path(job.last_good) if job.last_good else None
    paused = 0.0

    def outcome(result: str, version: int, reason: str = "") -> SwapOutcome:
        total = time.monotonic() - started
        fields = {"result": result, "version": version, "asked": job.version, "reason": reason[:2000]}
        fields["finished"] = time.time()
        return msgspec.convert({**fields, "paused_seconds": paused, "total_seconds": total}, SwapOutcome)

    try:
        canary = _canary(path)
        served = await engine.version()
        with anyio.fail_after(job.deadline):
            await engine.prepare(path, like=last_good, manifest=job.manifest, epoch=job.epoch)
    except CheckpointRefused as error:
        return outcome("refused", job.last_version, str(error))
    except TimeoutError:
        return outcome("unreachable", job.last_version, f"{path} was not read within {job.deadline:g} s")
    except EngineError as error:  # an engine that was started without what a swap needs is no fault of the version
        return outcome("unreachable", job.last_version, str(error))
    pause_began = time.monotonic()
    try:
        try:
            paused = await _exchange(engine, job, path, job.version)
        except CheckpointRefused as error:
            paused = time.monotonic() - pause_began
            return outcome("refused", served, str(error))
        await _confirm(engine, job.version, canary, job.tolerance)
        return outcome("swapped", job.version)
    except (EngineError, TimeoutError) as error:
        paused = paused or time.monotonic() - pause_began
        reason = f"{type(error).__name__}: {error}"
    if last_good is None:
        return outcome("failed", await _version_or_unknown(engine), reason)
    try:
        paused += await _exchange(engine, job, last_good, job.last_version, clean=True)
        await _confirm(engine, job.last_version, None, job.tolerance)
    except (EngineError, TimeoutError) as error:
        again = f"{reason}; and going back: {type(error).__name__}: {error}"
        return outcome("failed", await _version_or_unknown(engine), again)
    return outcome("rolled_back", job.last_version, reason)


def _canary(path: Path) -> Canary | None:
    file = path / CANARY_FILE
    if not file.exists():
        return None
    try:
        canary = msgspec.json.decode(file.read_bytes(), type=Canary)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointRefused(f"{file} cannot be used: {error}; write the version again") from error
    if len(canary.ids) < 2 or len(canary.logprobs) != len(canary.ids) - 1:
        raise CheckpointRefused(f"{file} needs two ids or more and one log-prob for each but the first")
    return canary


async def _exchange(engine: Engine, job: SwapJob, path: Path, version: int, *, clean: bool = False) -> float:
    """Pause, load, label, resume; seconds that the engine was paused."""
    began = time.monotonic()
    try:
        with anyio.fail_after(job.deadline):
            # Within the try: a pause whose answer was lost may have happened.
            await engine.pause()
            await engine.load(path, epoch=job.epoch, clean=clean)
            await engine.label(version)
    finally:
        with anyio.CancelScope(shield=True):
            await _resume(engine)
    return time.monotonic() - began


async def _resume(engine: Engine) -> None:
    for attempt in range(1, _RESUME_ATTEMPTS + 1):
        try:
            await engine.resume()
            return
        except EngineError:
            if attempt == _RESUME_ATTEMPTS:
                raise
            await anyio.sleep(0.1 * 2**attempt)


async def _confirm(engine: Engine, version: int, canary: Canary | None, tolerance: float) -> None:
    """Look at what serves now.

    Raises:
        SwapFailed: it does not answer as the new weights must.
    """
    found = await engine.version()
    if found != version:
        raise SwapFailed(f"the engine says version {found}, {version} was loaded")
    if canary is None:
        prompt = await engine.render([{"role": "user", "content": "Are you there?"}])
        answer = await engine.generate(prompt, max_tokens=4, temperature=0.0, ignore_eos=True)
        if not answer.logprobs or not all(_LEAST_GREEDY <= value <= 1e-3 for value in answer.logprobs):
            raise SwapFailed(f"the canary's log-probs are no log-probs: {answer.logprobs}")
        return
    scores = await engine.log_probs(canary.ids)
    pairs = zip(scores[1:].tolist(), canary.logprobs, strict=True)
    worst = max(abs(ours - theirs) if math.isfinite(ours) else math.inf for ours, theirs in pairs)
    if worst > tolerance:
        raise SwapFailed(f"the canary's log-probs are off by {worst:.4f} nats, {tolerance} is allowed")


async def _version_or_unknown(engine: Engine) -> int:
    try:
        return await engine.version()
    except EngineError:
        return -1


async def run_swap(job: SwapJob, *, environment: Mapping[str, str] | None = None) -> SwapOutcome:
    """Run the program and wait for it; whoever waits may be cancelled or die, the program goes on.

    Args:
        environment: what the program sees beside the few harmless variables that it inherits.

    Raises:
        SwapFailed: it left no outcome, or another swap of this engine is running.
    """
    result = Path(job.result)
    result.parent.mkdir(parents=True, exist_ok=True)
    ended, process = await anyio.to_thread.run_sync(_spawn, job, dict(environment or {}))
    try:
        await anyio.wait_readable(ended)  # the program's end of the pipe closes when it ends, however that is
    finally:
        os.close(ended)
    code = await anyio.to_thread.run_sync(process.wait)
    if code == _BUSY:
        raise SwapFailed(f"another swap of this engine is running ({result}.lock)")
    outcome = await anyio.to_thread.run_sync(_take, result)
    if outcome is None:
        raise SwapFailed(f"the swap's program ended with status {code} and no outcome; see {_log_file(result)}")
    return outcome


def _spawn(job: SwapJob, environment: dict[str, str]) -> tuple[int, "subprocess.Popen[bytes]"]:
    readable, writable = os.pipe()
    env = {name: os.environ[name] for name in _KEPT if name in os.environ} | environment
    result = Path(job.result)
    try:
        with _log_file(result).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "adapters.engines.swap", msgspec.json.encode(job).decode()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True, pass_fds=(writable,),
            )  # fmt: skip
    except BaseException:
        os.close(readable)
        raise
    finally:
        os.close(writable)
    return readable, process


async def collect(result: Path, *, wait: float = 300.0, key: str = "") -> SwapOutcome | None:
    """What a program of an earlier life came to; waits while it still runs. None if there is nothing to collect.

    If the program was killed in mid-swap, the engine may be paused, or serve weights under the wrong label: the last
    good version is loaded again, or at least the engine is resumed.

    Args:
        key: the engine's API key, if it has one.

    Raises:
        SwapFailed: the program still runs after `wait` seconds.
    """
    lock = await _wait_for_lock(result, wait)
    try:
        outcome = await anyio.to_thread.run_sync(_take, result)
        if outcome is not None:
            return outcome
        job = await anyio.to_thread.run_sync(_job, result)
        if job is None:
            return None
        _log.warning("swap.abandoned", engine=job.engine, version=job.version)
        async with VllmEngine(job.engine, deadlines=_deadlines(job), key=key) as engine:
            outcome = await _recover(job, engine)
        if outcome.result != "unreachable":
            _job_file(result).unlink(missing_ok=True)
        return outcome
    finally:
        os.close(lock)


async def _recover(job: SwapJob, engine: Engine) -> SwapOutcome:
    """Bring an engine back whose swap was killed, wherever that was."""
    reason = "the swap's program was killed"
    began = time.monotonic()
    try:
        if job.last_good:
            await _exchange(engine, job, Path(job.last_good), job.last_version, clean=True)
            await _confirm(engine, job.last_version, None, job.tolerance)
            result, version = "rolled_back", job.last_version
        else:
            await _resume(engine)
            result, version = "failed", await engine.version()
    except (EngineError, TimeoutError) as error:
        reason = f"{reason}; {type(error).__name__}: {error}"
        result, version = "unreachable" if isinstance(error, EngineUnavailable) else "failed", -1
    seconds = time.monotonic() - began
    fields = {"result": result, "version": version, "asked": job.version, "total_seconds": seconds, "reason": reason}
    return msgspec.convert({**fields, "finished": time.time()}, SwapOutcome)


async def _wait_for_lock(result: Path, wait: float) -> int:
    if not result.parent.is_dir():
        result.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + wait
    while True:
        lock = _try_lock(result)
        if lock is not None:
            return lock
        if time.monotonic() > end:
            raise SwapFailed(f"a swap of this engine still runs after {wait:g} s ({result})")
        await anyio.sleep(_LOOK_SECONDS)  # file locks have no event to wait for


def _try_lock(result: Path) -> int | None:
    """A descriptor that holds the engine's lock until it is closed, None if somebody else has it."""
    descriptor = os.open(result.with_name(result.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _take(result: Path) -> SwapOutcome | None:
    if result.exists():
        # In this order: a job without a result looks like a program that was killed.
        _job_file(result).unlink(missing_ok=True)
    try:
        outcome = msgspec.json.decode(result.read_bytes(), type=SwapOutcome)
    except FileNotFoundError:
        return None
    result.unlink()
    return outcome


def _job(result: Path) -> SwapJob | None:
    try:
        return msgspec.json.decode(_job_file(result).read_bytes(), type=SwapJob)
    except FileNotFoundError:
        return None


def _job_file(result: Path) -> Path:
    return result.with_name(result.name + ".job")


def _log_file(result: Path) -> Path:
    return result.with_name(result.name + ".log")


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it appears whole."""
    aside = path.with_name(path.name + ".new")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _deadlines(job: SwapJob) -> Deadlines:
    return Deadlines(small=min(30.0, job.deadline), sample=min(60.0, job.deadline), load=job.deadline)


async def _main(job: SwapJob) -> None:
    key = os.environ.get(KEY_VARIABLE, "")
    async with VllmEngine(job.engine, deadlines=_deadlines(job), key=key) as engine:
        outcome = await perform(job, engine)
    _write(Path(job.result), msgspec.json.encode(outcome))


def main(argument: str) -> int:
    """Do the job in `argument`; the exit status says whether an outcome was written (4: another swap runs)."""
    job = msgspec.json.decode(argument, type=SwapJob)
    result = Path(job.result)
    lock = _try_lock(result)
    if lock is None:
        return _BUSY
    result.unlink(missing_ok=True)  # of an earlier swap that nobody asked about
    _write(_job_file(result), argument.encode())
    anyio.run(_main, job)
    _job_file(result).unlink(missing_ok=True)
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
