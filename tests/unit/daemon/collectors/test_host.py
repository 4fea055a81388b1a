"""The machine's figures, as far as it tells them."""

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from daemon.collectors.host import HostCollector


def scraped(state: Path, meminfo: Path) -> dict[str, float]:
    registry = CollectorRegistry()
    HostCollector(state, meminfo).register(registry)
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_process_memory_load_and_disk_are_there(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       100 kB\nMemAvailable:    40 kB\n")
    found = scraped(tmp_path, meminfo)
    assert found["evolved_host_memory_available_bytes"] == 40 * 1024
    assert 0 < found["evolved_state_disk_free_bytes"] <= found["evolved_state_disk_size_bytes"]
    assert found["evolved_host_cores"] >= 1
    assert found["process_resident_memory_bytes"] > 1e6


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path) -> None:
    found = scraped(tmp_path / "missing", tmp_path / "missing")
    assert "evolved_host_load1" in found
    assert not {"evolved_host_memory_available_bytes", "evolved_state_disk_free_bytes"} & found.keys()
