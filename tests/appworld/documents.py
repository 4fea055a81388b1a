"""AppWorld's OpenAPI documents and its API server; runs in .venv-appworld, imports nothing of ours.

    documents.py DIRECTORY          writes one document for each app
    documents.py --serve PORT       serves all apps, with empty databases, on 127.0.0.1

What it writes is AppWorld's: for a temporary directory, never for the repository. `appworld serve` would listen on
every interface and wants the data, so uvicorn is started here.
"""

import argparse
import json
import os
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--serve", type=int, metavar="PORT")
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
    elif given.directory:
        write(given.directory)
    else:
        parser.error("a directory or --serve")


def write(directory: Path) -> None:
    from appworld.apps import get_all_apps
    from appworld.common.utils import import_apis_module

    directory.mkdir(parents=True, exist_ok=True)
    for name in get_all_apps(skip_admin=True, skip_api_docs=True):
        document = import_apis_module(name).app.openapi()
        (directory / f"{name}.json").write_text(json.dumps(document))


def serve(port: int) -> None:
    import uvicorn
    from appworld.apps import build_main_app
    from appworld.apps.model_lib import get_db_home_path
    from appworld.common.constants import DEFAULT_SYSTEM_DATETIME

    os.environ["LOAD_ON_STARTUP"] = "true"
    home = get_db_home_path(storage_type="memory", type="base")
    os.environ["APPWORLD_DB_ARGS"] = json.dumps({"to_db_home_path": home, "from_db_home_path": None, "create": True})
    os.environ["APPWORLD_DATE_TIME"] = DEFAULT_SYSTEM_DATETIME.isoformat()
    uvicorn.run(build_main_app(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
