"""The embedded engine: a small torch server with the part of vLLM's HTTP surface that evolved uses.

    requests -> prompts -> batching (worker thread: model, prefix, sampling) -> answers -> HTTP

For demos, tests and machines without a GPU; the same contract tests run on vLLM.
"""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `evolved engine`. torch is imported here, not before. Raises ModuleNotFoundError: torch is not installed."""
    from adapters.engines.embedded.command import main as run

    return run(argv)
