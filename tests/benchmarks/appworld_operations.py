"""AppWorld's operations, printed as JSON by the interpreter of an environment that has appworld installed.

    .venv-appworld/bin/python tests/benchmarks/appworld_operations.py

Nothing of ours is imported here, and nothing of what is printed is kept: the package's documents stay in the package.
"""

import json
import sys
from typing import Any

from appworld.collections.api_docs import ApiDocCollection  # pyright: ignore[reportMissingImports]


def operations() -> list[dict[str, Any]]:
    """One object an operation: app, name, description, and its parameters as (name, type, description, required)."""
    found = ApiDocCollection.build()
    return [
        {
            "app": app,
            "name": name,
            "description": document["description"],
            "parameters": [
                [each["name"], each["type"], each["description"], each["required"]] for each in document["parameters"]
            ],
        }
        for app in sorted(found.keys())
        for name, document in sorted(found[app].items())
    ]


if __name__ == "__main__":
    json.dump(operations(), sys.stdout)
