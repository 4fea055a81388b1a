"""`evolved engine --vllm`: the command line that it makes of what it was given."""

import subprocess
import sys
from pathlib import Path

import pytest

from adapters.engines.vllm_server import command_line, environment
from tests.support.patience import wait_until


def test_a_gpu_gets_what_evolved_needs_and_nothing_else() -> None:
    command = command_line("/v/python", "Qwen/Qwen3-4B", "127.0.0.1", 8000, "cuda")
    assert command[:5] == ["/v/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen3-4B"]
    assert "--enable-scale-out" in command
    assert not {"--enforce-eager", "--no-enable-chunked-prefill", "--dtype"} & set(command)


def test_a_cpu_reads_prompts_whole_and_has_a_bounded_cache_unless_told_otherwise_by_hand(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"torch_dtype": "float32"}')
    command = command_line("python", str(tmp_path), "127.0.0.1", 8000, "cpu")
    assert command[command.index("--dtype") + 1] == "float32"
    for given, ours in (
        ("--kv-cache-memory-bytes=5", "--kv-cache-memory-bytes"),
        ("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        ("--no-enforce-eager", "--enforce-eager"),
    ):
        assert ours in command
        instead = command_line("python", "m", "127.0.0.1", 8000, "cpu", [given])
        assert (instead.count(given), ours in instead) == (1, False)


@pytest.mark.promise
def test_the_server_sees_no_secrets() -> None:
    seen = environment({"PATH": "/bin", "OPENAI_API_KEY": "k", "VLLM_LOGGING_LEVEL": "INFO"}, local=True)
    assert "OPENAI_API_KEY" not in seen
    assert seen["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] == "75"
    assert (seen["VLLM_LOGGING_LEVEL"], seen["VLLM_SERVER_DEV_MODE"], seen["HF_HUB_OFFLINE"]) == ("INFO", "1", "1")


@pytest.mark.skipif(sys.platform != "linux", reason="nothing else tells a child that its parent was killed")
def test_a_launcher_that_is_killed_takes_the_server_with_it(tmp_path: Path) -> None:
    python, pid = tmp_path / "python", tmp_path / "pid"
    answer = '{"vllm": true, "plugin": true, "device": "cpu"}'
    python.write_text(f"#!/bin/sh\n[ \"$1\" = -c ] && exec echo '{answer}'\necho $$ > {pid}.new\nmv {pid}.new {pid}\n"
                      "exec sleep 300\n")  # fmt: skip
    python.chmod(0o755)
    command = [sys.executable, "-m", "daemon.cli", "engine", "--vllm", "m", "--python", str(python)]
    launcher = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until(pid.exists, "the server has started")
    server = Path(f"/proc/{int(pid.read_text())}")
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not server.exists() or " Z " in (server / "stat").read_text(), "it has ended")
