"""Writes AppWorld's OpenAPI documents, one for each app; runs in .venv-appworld, imports nothing of ours.

    documents.py DIRECTORY

What it writes is AppWorld's: for a temporary directory, never for the repository.
"""

import json
import sys
from pathlib import Path

from appworld.apps import get_all_apps  # pyright: ignore[reportMissingImports]
from appworld.common.utils import import_apis_module  # pyright: ignore[reportMissingImports]

for name in get_all_apps(skip_admin=True, skip_api_docs=True):
    document = import_apis_module(name).app.openapi()
    (Path(sys.argv[1]) / f"{name}.json").write_text(json.dumps(document))
