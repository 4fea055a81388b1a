"""The swap: the section from pause to resume, as a small program that outlives the daemon.

    python -m adapters.engines.swap JOB          JOB is a `SwapJob` in JSON

prepare (check, while the old version serves) -> pause (keep, cache dropped) -> load -> label -> resume -> spot check,
and if that fails, pause to resume with the last good version. Resume runs in a `finally` with a deadline of its own:
agents wait behind a pause, so nothing that goes wrong here may leave one behind. The program runs in a session of its
own and writes what came of it to a file; a daemon that died meanwhile collects it (`collect`), and finishes the work of
a program that was killed too.

Files carry a swap (`swap_files`). The program inherits the engine's lock from whoever starts it, so that there is no
moment at which a job is written and nobody is at it. Who cannot see them, on another machine, waits for the job's end
(`until`): by then the program has stopped touching the engine.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import anyio
import msgspec
import structlog

from actors.messages.files import write_whole
from actors.messages.manifest import SPOT_CHECK, SpotCheck
from actors.ports.engines import Engine
from actors.ports.errors import CheckpointRefused, EngineError, EngineUnavailable, SwapFailed
from adapters.engines.client import Deadlines
from adapters.engines.swap_files import SwapFiles, SwapJob, SwapOutcome
from adapters.engines.vllm import VllmEngine

__all__ = ["SwapJob", "SwapOutcome", "collect", "perform", "run_swap"]

_log = structlog.get_logger(__name__)
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
"""Variables that the program sees."""
_RESUME_SECONDS = 20.0
"""For so long the program insists on resume. An engine that does not hear it for longer is mostly dead, and one that is
not is found paused by the swapper's or the gatekeeper's next look."""
_RESUME_WAIT = 5.0
"""Seconds between two attempts at the most."""
_LEAST_GREEDY = -20.0
"""Nats that the likeliest of V tokens has at the least: -ln V. vLLM writes -9999 where it computed NaN."""
_AWAY = 0.3
"""Nats, in the mean of a spot check's tokens, that an engine may be away from the learner. On the demo's policy
(20 draws) bfloat16 against float32 makes 0.04 to 0.07, int8 weights 0.06 to 0.10; a projection left out, two layers or
two projections exchanged, heads shifted by one 0.9 to 4.2."""
_LOOK_SECONDS = 0.05
_NO_MORE = 15.0
"""Seconds past the job's end after which even a pause is somebody else's to end."""
KEY_VARIABLE = "EVOLVED_ENGINE_KEY"
"""Variable with the engine's API key, if it has one: arguments are for everybody to read."""


async def perform(job: SwapJob, engine: Engine) -> SwapOutcome:
    """Do the whole swap; never raises an EngineError."""
    started = time.monotonic()
    path, last_good = Path(job.path), Path(job.last_good) if job.last_good else None
    paused = 0.0

    def outcome(result: str, version: int, reason: str = "") -> SwapOutcome:
        total = time.monotonic() - started
        fields = {"result": result, "version": version, "asked": job.version, "reason": reason[:2000]}
        fields |= {"finished": time.time(), "epoch": job.epoch}
        return msgspec.convert({**fields, "paused_seconds": paused, "total_seconds": total}, SwapOutcome)

    try:
        expected = _spot_check(path)
        served = await engine.version()
        with anyio.fail_after(_seconds(job, keep=0.5)):
            await engine.prepare(path, like=last_good, manifest=job.manifest, epoch=job.epoch)
    except CheckpointRefused as error:
        return outcome("refused", job.last_version, str(error))
    except TimeoutError:
        took = time.monotonic() - started
        return outcome("unreachable", job.last_version, f"{path} was not read within {took:.0f} s")
    except EngineError as error:  # an engine that was started without what a swap needs is no fault of the version
        return outcome("unreachable", job.last_version, str(error))
    pause_began = time.monotonic()
    try:
        try:
            paused = await _exchange(engine, job, path, job.version, keep=0.5)
        except CheckpointRefused as error:
            paused = time.monotonic() - pause_began
            return outcome("refused", served, str(error))
        with anyio.fail_after(_seconds(job, keep=0.5)):
            await _confirm(engine, job.version, expected)
        return outcome("swapped", job.version)
    except (EngineError, TimeoutError) as error:
        paused = paused or time.monotonic() - pause_began
        reason = f"{type(error).__name__}: {error}"
    if last_good is None:
        return outcome("failed", await _version_or_unknown(engine), reason)
    try:
        paused += await _exchange(engine, job, last_good, job.last_version, clean=True)
        await _confirm(engine, job.last_version, None)
    except (EngineError, TimeoutError) as error:
        again = f"{reason}; and going back: {type(error).__name__}: {error}"
        return outcome("failed", await _version_or_unknown(engine), again)
    return outcome("rolled_back", job.last_version, reason)


def _spot_check(path: Path) -> SpotCheck | None:
    file = path / SPOT_CHECK
    if not file.exists():  # a model that our learner did not write
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=SpotCheck)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointRefused(f"{file} cannot be used: {error}; write the version again") from error


def _seconds(job: SwapJob, keep: float = 0.0) -> float:
    """How long the next part of `job` may take, if the share `keep` of what is left is to be kept for going back."""
    left = (job.until - time.monotonic()) * (1.0 - keep) if job.until else job.deadline
    return max(0.0, min(job.deadline, left))


async def _exchange(
    engine: Engine, job: SwapJob, path: Path, version: int, *, clean: bool = False, keep: float = 0.0
) -> float:
    """Pause, load, label, resume; seconds that the engine was paused."""
    began = time.monotonic()
    try:
        with anyio.fail_after(_seconds(job, keep)):
            # Within the try: a pause whose answer was lost may have happened.
            await engine.pause()
            await engine.load(path, epoch=job.epoch, clean=clean)
            await engine.label(version)
    finally:
        # Stopped for so long (SIGSTOP, a suspended machine), it is somebody else's pause by now.
        if not job.until or time.monotonic() < job.until + _NO_MORE:
            with anyio.CancelScope(shield=True):
                await _resume(engine)
    return time.monotonic() - began


async def _resume(engine: Engine) -> None:
    end, wait = anyio.current_time() + _RESUME_SECONDS, min(0.2, _RESUME_WAIT)
    while True:
        try:
            await engine.resume()
            return
        except EngineError:
            if anyio.current_time() + wait > end:
                raise
        await anyio.sleep(wait)
        wait = min(2 * wait, _RESUME_WAIT)


async def _confirm(engine: Engine, version: int, expected: SpotCheck | None) -> None:
    """Look at what serves now. Raises SwapFailed: it does not answer as the new weights must."""
    found = await engine.version()
    if found != version:
        raise SwapFailed(f"the engine says version {found}, {version} was loaded")
    if expected is None:
        prompt = await engine.render([{"role": "user", "content": "Are you there?"}])
        answer = await engine.generate(prompt, max_tokens=4, temperature=0.0, ignore_eos=True)
        if not answer.logprobs or not all(_LEAST_GREEDY <= value <= 1e-3 for value in answer.logprobs):
            raise SwapFailed(f"its log-probs are no log-probs: {answer.logprobs}")
        return
    scores = (await engine.log_probs(expected.ids))[1:].tolist()
    away = fmean(abs(ours - theirs) for ours, theirs in zip(scores, expected.log_probs, strict=True))
    if not away <= _AWAY:  # a NaN is no agreement
        raise SwapFailed(
            f"its log-probs are {away:.3f} nats from the learner's in the mean of {len(scores)} tokens, {_AWAY} is "
            "allowed: the engine computes something else with these weights (architecture, quantization, tokenizer)"
        )


async def _version_or_unknown(engine: Engine) -> int:
    try:
        return await engine.version()
    except EngineError:
        return -1


async def run_swap(job: SwapJob, *, environment: Mapping[str, str] | None = None) -> SwapOutcome:
    """Run the program and wait for it; whoever waits may be cancelled or die, the program goes on. `environment`:
    what the program sees beside the few harmless variables that it inherits. Raises SwapFailed: it left no outcome,
    or another swap of this engine is running."""
    files = SwapFiles(Path(job.result))
    ended, process = await anyio.to_thread.run_sync(_spawn, job, dict(environment or {}))
    try:
        await anyio.wait_readable(ended)  # the program's end of the pipe closes when it ends, however that is
    finally:
        os.close(ended)
    code = await anyio.to_thread.run_sync(process.wait)
    outcome = await anyio.to_thread.run_sync(files.take)
    if outcome is None:
        raise SwapFailed(f"the swap's program ended with status {code} and no outcome; see {files.log}")
    return outcome


def _spawn(job: SwapJob, environment: dict[str, str]) -> tuple[int, "subprocess.Popen[bytes]"]:
    env = {name: os.environ[name] for name in _KEPT if name in os.environ} | environment
    files = SwapFiles(Path(job.result))
    files.result.parent.mkdir(parents=True, exist_ok=True)
    # Locked here and inherited: there is no moment at which the job is written and nobody is at it.
    lock = files.try_lock()
    if lock is None:
        raise SwapFailed(f"another swap of this engine is running ({files.lock})")
    readable, writable = os.pipe()
    content = msgspec.json.encode(job)
    try:
        files.result.unlink(missing_ok=True)  # of an earlier swap that nobody asked about
        write_whole(files.job, content)
        with files.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "adapters.engines.swap", content.decode()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
                pass_fds=(writable, lock),
            )  # fmt: skip
    except BaseException:
        os.close(readable)
        files.job.unlink(missing_ok=True)
        raise
    finally:
        os.close(writable)
        os.close(lock)
    return readable, process


async def collect(result: Path, *, wait: float = 300.0, key: str = "") -> SwapOutcome | None:
    """What a program of an earlier life came to; waits while it still runs. None if there is nothing to collect.

    If the program was killed in mid-swap, the engine may be paused, or serve weights under the wrong label: the last
    good version is loaded again, or at least the engine is resumed. `key`: the engine's API key, if it has one.
    Raises SwapFailed: the program still runs after `wait` seconds.
    """
    files = SwapFiles(result)
    lock = await _wait_for_lock(files, wait)
    try:
        outcome = await anyio.to_thread.run_sync(files.take)
        if outcome is not None:
            return outcome
        job = await anyio.to_thread.run_sync(files.read_job)
        if job is None:
            return None
        _log.warning("swap.abandoned", engine=job.engine, version=job.version)
        async with VllmEngine(job.engine, deadlines=_deadlines(job), key=key) as engine:
            # Its time may be over: finishing it is work of now.
            outcome = await _recover(msgspec.structs.replace(job, until=0.0), engine)
        if outcome.result != "unreachable":
            files.job.unlink(missing_ok=True)
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
            await _confirm(engine, job.last_version, None)
            result, version = "rolled_back", job.last_version
        else:
            await _resume(engine)
            result, version = "failed", await engine.version()
    except (EngineError, TimeoutError) as error:
        reason = f"{reason}; {type(error).__name__}: {error}"
        result, version = "unreachable" if isinstance(error, EngineUnavailable) else "failed", -1
    seconds = time.monotonic() - began
    fields = {"result": result, "version": version, "asked": job.version, "total_seconds": seconds, "reason": reason}
    return msgspec.convert({**fields, "finished": time.time(), "epoch": job.epoch}, SwapOutcome)


async def _wait_for_lock(files: SwapFiles, wait: float) -> int:
    if not files.result.parent.is_dir():
        files.result.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + wait
    while True:
        lock = files.try_lock()
        if lock is not None:
            return lock
        if time.monotonic() > end:
            raise SwapFailed(f"a swap of this engine still runs after {wait:g} s ({files.result})")
        await anyio.sleep(_LOOK_SECONDS)  # file locks have no event to wait for


def _deadlines(job: SwapJob) -> Deadlines:
    return Deadlines(small=min(30.0, job.deadline), sample=min(60.0, job.deadline), load=job.deadline)


async def _main(job: SwapJob) -> None:
    key = os.environ.get(KEY_VARIABLE, "")
    async with VllmEngine(job.engine, deadlines=_deadlines(job), key=key) as engine:
        outcome = await perform(job, engine)
    write_whole(Path(job.result), msgspec.json.encode(outcome))


def main(argument: str) -> int:
    """Do the job in `argument`, under the lock that was inherited."""
    job = msgspec.json.decode(argument, type=SwapJob)
    anyio.run(_main, job)
    SwapFiles(Path(job.result)).job.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
