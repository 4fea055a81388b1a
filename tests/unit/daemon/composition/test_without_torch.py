"""The tap and the daemon run where torch was never installed."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "modules",
    [
        "daemon.cli.main",
        "daemon.tap.server",
        "daemon.composition.service",
        "daemon.settings.config, daemon.api.control, daemon.cli.status",
        "learner.service",
    ],
)
def test_importing_it_imports_no_torch(modules: str) -> None:
    program = (
        f"import sys; import {modules}; found = {{'torch', 'transformers'}} & set(sys.modules); sys.exit(bool(found))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_daemon_without_an_llm_judge_does_not_load_its_client() -> None:
    program = "import sys; import daemon.composition.service, adapters.judges.rules; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_missing_torch_is_answered_with_the_extra_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from daemon.cli.main import main; sys.exit(main(['engine', '--model', 'nowhere']))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "evolved[learner]" in run.stderr
