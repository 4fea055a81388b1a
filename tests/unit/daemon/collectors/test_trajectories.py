"""The assembler's counts as metrics."""

from prometheus_client import CollectorRegistry, generate_latest

from actors.store import Store
from actors.trajectories.assembler import Assembler, AssemblerSettings
from daemon.collectors.figures import Figures
from daemon.collectors.trajectories import assembler_figures


def test_links_are_exposed_by_signal_and_confidence(store_url: str) -> None:
    store = Store(store_url, clock=lambda: 0.0)
    assembler = Assembler(AssemblerSettings(), store=store, clock=lambda: 0.0)
    registry = CollectorRegistry()
    registry.register(Figures(assembler_figures, assembler))
    assembler.links.update({("tool_call", 1.0): 7, ("prefix", 0.8): 2})
    assembler.counts["side_calls"] = 3
    said = generate_latest(registry).decode()
    assert 'evolved_links_total{confidence="1",signal="tool_call"} 7.0' in said
    assert 'evolved_links_total{confidence="0.8",signal="prefix"} 2.0' in said
    assert 'evolved_assembler_records_total{what="side_calls"} 3.0' in said
    assert "evolved_assembler_open_calls 0.0" in said
