"""The tap and the daemon run where torch was never installed."""

import subprocess
import sys


def test_importing_it_imports_no_torch_and_no_llms_client() -> None:
    program = """
import importlib
import sys

for module in (
    "daemon.tap.server", "daemon.composition.service", "adapters.judges.rules", "daemon.settings.reading",
    "daemon.api.control", "daemon.cli.status", "daemon.cli.main", "learner.service",
):
    importlib.import_module(module)
    found = {"torch", "transformers", "openai"} & set(sys.modules)
    assert not found, f"{module} imports {found}"
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


def test_a_missing_torch_is_answered_with_the_extra_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from daemon.cli.main import main; sys.exit(main(['engine', '--model', 'nowhere']))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "evolved[learner]" in run.stderr
