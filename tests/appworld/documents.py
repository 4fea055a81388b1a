"""AppWorld's OpenAPI documents and its API server; runs in .venv-appworld, imports nothing of ours.

    documents.py DIRECTORY          writes one document for each app
    documents.py --serve PORT       serves all apps, with empty databases, on 127.0.0.1

What it writes is AppWorld's: for a temporary directory, never for the repository. `appworld serve` would listen on every
interface, so uvicorn is started here.
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--serve", type=int, metavar="PORT")
    given = parser.parse_args()
    from appworld.apps import build_main_app  # slow: imports every app

    app = build_main_app(from_db_home_path=None)
