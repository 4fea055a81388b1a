"""`evolved engine --vllm MODEL`: starts the vLLM of an environment of your own with the settings that evolved needs.

vLLM pins torch and much else, so it lives in its own environment; `--python` names that environment's interpreter. This
process asks the interpreter what it has, starts the server as a child with a scrubbed environment, says when it is
ready, passes signals on, and ends when the server does. Whatever it does not know is vLLM's own and passed on; an
option given by hand takes the place of the one that would have been set.
"""

import argparse
import contextlib
import ctypes
import ipaddress
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import httpx
import msgspec

from actors.ports.errors import EngineNotStarted

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME")
_KEPT_OF = ("VLLM_", "HF_", "CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "OMP_", "TORCH", "TRITON_")
"""Beginnings of further variables that vLLM, torch and the drivers read."""
_KV_CACHE_BYTES = 1 << 30
"""On a CPU; without it vLLM takes most of the machine's memory."""
_PROGRESS_SECONDS, _STOP_SECONDS, _LOOK_SECONDS = 5.0, 30.0, 0.5
_PR_SET_PDEATHSIG = 1
_QUESTION = """
import importlib.metadata, importlib.util, json
found = {"vllm": importlib.util.find_spec("vllm") is not None, "device": ""}
found["plugin"] = any(e.name == "evolved" for e in importlib.metadata.entry_points(group="vllm.general_plugins"))
if found["vllm"]:
    from vllm.platforms import current_platform
    found["device"] = str(current_platform.device_type)
print("\\n" + json.dumps(found))
"""


class _Interpreter(msgspec.Struct, frozen=True):
    """What an interpreter has."""

    vllm: bool
    plugin: bool
    device: str


def parser() -> argparse.ArgumentParser:
    """The arguments that are ours."""
    top = argparse.ArgumentParser(
        prog="evolved engine --vllm",
        allow_abbrev=False,
        description="Start a vLLM of your own with what evolved needs: development endpoints (loads and pauses), token "
        "endpoints, processed log-probs. All other options are vLLM's and passed on as they are.",
        epilog="example: evolved engine --vllm Qwen/Qwen3-4B --python /opt/vllm/bin/python --port 8000 --max-model-len "
        "8192",
    )
    top.add_argument("--vllm", required=True, metavar="MODEL", help="checkpoint directory, or a name vLLM resolves")
    top.add_argument(
        "--python", default=sys.executable, metavar="PATH", help="interpreter of vLLM's environment (this one)"
    )
    top.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    top.add_argument("--port", type=int, default=8000)
    top.add_argument(
        "--private-network", action="store_true",
        help="listen on an address that is not loopback: its development endpoints know no authentication, only the "
        "tap and the daemon may reach it",
    )  # fmt: skip
    top.add_argument("--log", type=Path, metavar="FILE", help="where vLLM's output goes (here)")
    top.add_argument("--start-seconds", type=float, default=1800.0, help="until it must be ready (1800)")
    return top


def main(argv: Sequence[str]) -> int:
    """Serve until told to stop; returns vLLM's exit status, or 2 if it could not be started."""
    ours, theirs = parser().parse_known_args(list(argv))
    try:
        _check_host(ours.host, ours.private_network)
        _say("asking the interpreter what it has")
        found = _ask(ours.python)
        if not found.plugin:
            _say(
                "the plug-in evolved-vllm is not installed there: versions are checked from outside, and tied heads "
                "are refused on a CPU (pip install ./adapters/engines/vllm_plugin)"
            )
        command = command_line(ours.python, ours.vllm, ours.host, ours.port, found.device, theirs)
        _say(shlex.join(command))
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(ours.log.open("ab")) if ours.log else None
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                preexec_fn=_ending_with(os.getpid()),
                # By this the plug-in knows whose end is the server's, should it be too stuck to obey.
                env=environment(os.environ, local=Path(ours.vllm).is_dir()) | {"EVOLVED_LAUNCHER": str(os.getpid())},
            )  # fmt: skip
            with _stopping(server) as stop:
                _await_health(server, stop, f"http://{ours.host}:{ours.port}", ours.start_seconds)
                return _await_end(server, stop)
    except EngineNotStarted as error:
        print(f"evolved engine: {error}", file=sys.stderr)
        return 2


def command_line(python: str, model: str, host: str, port: int, device: str, theirs: Sequence[str] = ()) -> list[str]:
    """The command that starts the server.

    Args:
        device: cpu, cuda, ...
        theirs: options for vLLM; each takes the place of one that would be set here.
    """
    given = {option.partition("=")[0] for option in theirs if option.startswith("--")}
    # Not `vllm serve`: the console script of CPU builds looks for a distribution called vllm, and fails.
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--host", host, "--port", str(port)]
    defaults: dict[str, str | None] = {
        "--enable-scale-out": None, "--logprobs-mode": "processed_logprobs", "--generation-config": "vllm",
    }  # fmt: skip
    if device == "cpu":
        defaults |= {"--enforce-eager": None, "--kv-cache-memory-bytes": str(_KV_CACHE_BYTES)}
        # A prompt that is read in pieces is sampled from too early, and the draw taken back; with a seed in the request
        # vLLM 0.32 then rewinds its generator, which torch cannot do on a CPU, and the whole server ends.
        defaults["--no-enable-chunked-prefill"] = None
        dtype = _dtype(Path(model))
        if dtype:
            defaults["--dtype"] = dtype
    for option, value in defaults.items():
        other = "--" + option[5:] if option.startswith("--no-") else "--no-" + option[2:]
        if not {option, other} & given:
            command += [option] if value is None else [option, value]
    return [*command, *theirs]


def environment(present: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """The variables that the server sees.

    Args:
        local: the model is a directory: nothing needs to be asked of a hub.
    """
    kept = {name: value for name, value in present.items() if name in _KEPT or name.startswith(_KEPT_OF)}
    kept |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    # By default it closes a connection after 5 idle seconds, and a busy server counts time in which it did not get
    # round to reading: what was sent meanwhile would be lost.
    kept.setdefault("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "75")
    return kept | ({"HF_HUB_OFFLINE": "1"} if local else {})


def _dtype(model: Path) -> str:
    """The type that a checkpoint was written in; vLLM would halve float32."""
    try:
        config = json.loads((model / "config.json").read_bytes())
    except (OSError, ValueError):
        return ""
    return str(config.get("dtype") or config.get("torch_dtype") or "")


def _check_host(host: str, private: bool) -> None:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and not private:
        raise EngineNotStarted(
            f"--host {host} can be reached from other machines, and whoever reaches the development endpoints may load "
            "any weights: listen on 127.0.0.1 behind the tap, or confirm with --private-network"
        )


def _ask(python: str) -> _Interpreter:
    try:
        answer = subprocess.run(
            [python, "-c", _QUESTION], capture_output=True, timeout=300, env=environment(os.environ, local=True),
            stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        found = msgspec.json.decode(answer.stdout.strip().splitlines()[-1], type=_Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, IndexError) as error:
        words = getattr(error, "stderr", None) or b""
        raise EngineNotStarted(
            f"--python {python} cannot be asked: {error} {words.decode(errors='replace')[-500:]}"
        ) from error
    if not found.vllm:
        raise EngineNotStarted(f"{python} has no vllm; give the interpreter of vLLM's environment with --python")
    return found


class _Stop:
    """Whether somebody asked the server to stop, and when."""

    since: float | None = None


@contextlib.contextmanager
def _stopping(server: "subprocess.Popen[bytes]") -> Iterator[_Stop]:
    """Pass signals on, and leave nothing of the server behind."""
    stop = _Stop()

    def forward(number: int, _: FrameType | None) -> None:
        stop.since = stop.since or time.monotonic()
        if server.poll() is None:
            server.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # its session: engine core and workers as well
        server.wait()


def _await_health(server: "subprocess.Popen[bytes]", stop: _Stop, url: str, seconds: float) -> None:
    began = said = time.monotonic()
    while not stop.since:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = server.wait(_LOOK_SECONDS)
            if stop.since:
                return
            raise EngineNotStarted(f"vLLM ended with status {code} before it was ready; its own words are above")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5.0, trust_env=False).status_code == 200:
                _say(f"ready at {url} after {time.monotonic() - began:.0f} s")
                return
        now = time.monotonic()
        if now - began > seconds:
            raise EngineNotStarted(f"vLLM was not ready after {seconds:g} s (--start-seconds)")
        if now - said > _PROGRESS_SECONDS:
            said = now
            _say(f"starting, {now - began:.0f} s so far")


def _ending_with(parent: int) -> Callable[[], None] | None:
    """What a child runs before it becomes the server: on Linux, have it told to stop when `parent` is killed, which can
    pass no signal on then; prctl(2), PR_SET_PDEATHSIG."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # before the fork: the child should do as little as it can

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return ask


def _await_end(server: "subprocess.Popen[bytes]", stop: _Stop) -> int:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = server.wait(_LOOK_SECONDS)
            return 0 if stop.since else code
        if stop.since and time.monotonic() - stop.since > _STOP_SECONDS:
            _say(f"vLLM did not stop within {_STOP_SECONDS:g} s and is killed")
            return 1


def _say(text: str) -> None:
    print(f"evolved engine: {text}", file=sys.stderr, flush=True)
