"""The dashboard: one static page that reads the control API; no build step, nothing from elsewhere."""

from pathlib import Path

STATIC = Path(__file__).parent / "static"
