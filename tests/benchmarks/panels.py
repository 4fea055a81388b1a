"""Does every query of the dashboards find something? Runs the demo with a real Prometheus beside it, and asks.

    python -m tests.benchmarks.panels [--minutes 4] [--seed 0] [--prometheus PATH] [--json FILE]

Prometheus scrapes the demo's processes with the shipped rules; every query of every panel in ops/grafana is put to it
again and again while the demo learns, and one that never had data is named, with exit status 1. Those that count what
should not happen say zero while it does not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import yaml

from daemon.demo.world import answers
from daemon.settings.config import load
from tests.benchmarks import report
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"


def panels() -> list[tuple[str, str, str]]:
    """(dashboard, panel, query) of all that are shipped."""
    found: list[tuple[str, str, str]] = []
    for path in sorted((OPS / "grafana" / "dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            found += [(dashboard["title"], panel["title"], target["expr"]) for target in panel["targets"]]
    return found


def scrape_config(directory: Path, demo: Path) -> Path:
    """The shipped configuration with the demo's ports, looked at every two seconds."""
    config = load(demo)
    shipped = yaml.safe_load((OPS / "prometheus" / "prometheus.yml").read_text())
    ports = {
        "evolved-daemon": config.control.port, "evolved-tap": config.tap.admin_port,
        "evolved-learner": config.learner.metrics_port, "engines": urlsplit(config.engines.serving.url).port,
    }  # fmt: skip
    shipped["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
    shipped["rule_files"] = [str(OPS / "prometheus" / name) for name in shipped["rule_files"]]
    shipped["scrape_configs"] = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in ports.items()
    ]
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(shipped))
    return path


def ask(url: str, query: str) -> int:
    """How many series `query` has now."""
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, timeout=10.0)
    answer.raise_for_status()
    # NaN is what a ratio of nothing gives: no data.
    return sum(one["value"][1] != "NaN" for one in answer.json()["data"]["result"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments(__doc__.split("\n", 1)[0])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=4.0, help="the demo learns for so long (4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prometheus", default="prometheus", help="its binary")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        seen = watch(directory, options)
    rows = [[dashboard, panel, query, seen[query]] for dashboard, panel, query in panels()]
    empty = sorted(f"{panel}: {query}" for _, panel, query, series in rows if not series)
    report.table("Queries, and the most series that each had", ["dashboard", "panel", "query", "series"], rows)
    for query in empty:
        print(f"empty: {query}")
    figures = {"queries": len(rows), "empty": len(empty)}
    report.write(options.json, "panels", figures, [options.seed])
    return 1 if empty else 0


def watch(directory: Path, options: argparse.Namespace) -> dict[str, int]:
    """The most series that each query had while the demo ran."""
    queries = list(dict.fromkeys(query for _, _, query in panels()))
    seen = dict.fromkeys(queries, 0)
    demo = subprocess.Popen(
        [
            sys.executable, "-m", "daemon.cli", "demo", "--dir", str(directory / "demo"), "--seed", str(options.seed),
            "--minutes", str(options.minutes), "--tasks", "64", "--json", str(directory / "demo.json"),
        ],
        cwd=ROOT,
    )  # fmt: skip
    prometheus = None
    try:
        while not (directory / "demo" / "config.toml").exists():
            time.sleep(0.5)
            if demo.poll() is not None:
                raise SystemExit("the demo did not start")
        time.sleep(1.0)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        prometheus = subprocess.Popen(
            [
                options.prometheus, f"--config.file={scrape_config(directory, directory / 'demo' / 'config.toml')}",
                f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while demo.poll() is None:
            time.sleep(5.0)
            if answers(f"{url}/-/ready"):
                seen = {query: max(series, ask(url, query)) for query, series in seen.items()}
    finally:
        for one in (prometheus, demo):
            if one is not None and one.poll() is None:
                one.terminate()
                one.wait(60)
    return seen


if __name__ == "__main__":
    sys.exit(main())
