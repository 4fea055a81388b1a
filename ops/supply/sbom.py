"""`python -m ops.supply.sbom FILE`: what tap and daemon run on, as a CycloneDX 1.6 software bill of materials.

Made from locks/base.txt and the installed packages' metadata, so that it names exactly what `--require-hashes` lets in.
The same lock gives the same file, but for its serial number, which follows from the content.
"""

import json
import sys
import uuid
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ops.supply.components import Component, components
from ops.supply.licences import LOCK

_OURS = "evolved"


def bill(found: Sequence[Component]) -> dict[str, Any]:
    """The document."""
    known = {one.name: [other for other in found if other.name == one.name] for one in found}
    ours = {"type": "application", "bom-ref": _OURS, "name": _OURS, "version": metadata.version(_OURS)}
    ours["licenses"] = [{"expression": "Apache-2.0"}]
    wanted = {one.name for one in found} - {name for one in found for name in one.needs}
    listed = [_component(one) for one in found]
    edges = [{"ref": _OURS, "dependsOn": sorted(_ref(one) for name in wanted for one in known[name])}]
    edges += [
        {"ref": _ref(one), "dependsOn": sorted(_ref(other) for name in one.needs for other in known.get(name, ()))}
        for one in found
    ]
    content = {"components": listed, "dependencies": edges}
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([ours, content], sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}", "version": 1, "metadata": {"component": ours}, **content,
    }  # fmt: skip


def _ref(one: Component) -> str:
    return f"pkg:pypi/{one.name}@{one.version}"


def _component(one: Component) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library", "bom-ref": _ref(one), "name": one.name, "version": one.version, "purl": _ref(one),
        "scope": "optional" if one.marker else "required",
    }  # fmt: skip
    if one.licence:
        made["licenses"] = [{"expression": one.licence}]
    # One of them is the file that was installed: a component's own hashes would claim that all are.
    made["properties"] = [{"name": "evolved:lock:sha256", "value": digest} for digest in one.hashes]
    if one.marker:
        made["properties"].append({"name": "evolved:lock:marker", "value": one.marker})
    return made


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m ops.supply.sbom FILE", file=sys.stderr)
        return 2
    out = Path(argv[0])
    out.parent.mkdir(parents=True, exist_ok=True)
    found = components(LOCK)
    out.write_text(json.dumps(bill(found), indent=2) + "\n")
    print(f"{out}: {len(found)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
