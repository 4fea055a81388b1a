"""`python -m ops.supply.licences`: writes docs/licences.md; exit status 1 if a licence is not allowed."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ops.supply.components import ALLOWED, EXCEPTIONS, Component, components, refused

ROOT = Path(__file__).parents[2]
LOCK, PAGE = ROOT / "locks" / "base.txt", ROOT / "docs" / "licences.md"


def page(found: Sequence[Component]) -> str:
    """The page, in Markdown: names and licences; versions are in the lock."""
    rows = {one.name: one for one in found if one.licence}
    elsewhere = sorted({f"`{one.name}` ({one.marker})" for one in found if not one.licence and one.marker})
    lines = [
        "# Licences of what evolved runs on", "",
        "evolved itself is Apache-2.0. This page is made by `make licences` from `locks/base.txt` (tap and daemon) and",
        "from what each package says of itself; versions and hashes are in the lock, and `make sbom` writes all of it",
        "as CycloneDX. A licence that is not on the list fails a test.", "",
        f"Allowed: {', '.join(sorted(ALLOWED))}.", "By name:",
        *(f"`{name}` ({licence}: used unchanged, as a library)" for name, licence in sorted(EXCEPTIONS.items())), "",
        "| package | licence |", "|---|---|",
        *(f"| {one.name} | {one.licence} |" for one in sorted(rows.values(), key=lambda one: one.name)), "",
        f"Installed on other systems alone, so not read here: {', '.join(elsewhere) or 'none'}.", "",
        "Not in this lock: torch, transformers, tensorboardX (the learner), vLLM, verl and what the benchmarks and",
        "tests compare with. Known weaknesses of what is locked are told by", "",
        "<!-- not run: needs the network -->",
        "```sh", "pipx run pip-audit --require-hashes -r locks/base.txt", "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    found = components(LOCK)
    PAGE.write_text(page(found))
    for line in refused(found):
        print(line, file=sys.stderr)
    return 1 if refused(found) else 0


if __name__ == "__main__":
    sys.exit(main())
