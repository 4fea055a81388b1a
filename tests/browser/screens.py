"""Screenshots of every page of a running daemon's dashboard, in light and dark.

    .venv-browser/bin/python -m tests.browser.screens --url http://127.0.0.1:8090 --out docs/dashboard

Every page in both schemes, or with --light a,b and --dark c those alone: `overview-light.png` and so on.
"""

import argparse
import io
import re
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tests.browser.chromium import chromium

WIDTH, HEIGHT = 1280, 860
PAGES = {
    "overview": "",
    "trajectories": "trajectories?source=production",
    "trajectory": "trajectories?source=production&outcome=failure",
    "versions": "versions",
    "version": "versions",
    "experience": "experience",
    "lesson": "experience",
    "adapters": "adapters",
    "judge": "judge",
    "dead": "dead",
    "order": "",
}
"""By name, the address that it begins at."""

TELLING = {"trajectory": "in a batch", "version": "signed", "lesson": "active"}
"""Pages of one thing, and what the list says of a good one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of the daemon's control API")
    parser.add_argument("--out", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--light", default=",".join(PAGES), metavar="PAGES", help="in the light scheme (all)")
    parser.add_argument("--dark", default=",".join(PAGES), metavar="PAGES", help="in the dark one (all)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for scheme, names in (("light", arguments.light), ("dark", arguments.dark)):
            context = browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, reduced_motion="reduce"
            )
            page = context.new_page()
            for name in filter(None, names.split(",")):
                show(page, arguments.url.rstrip("/"), name)
                path = arguments.out / f"{name}-{scheme}.png"
                path.write_bytes(small(page.screenshot(full_page=name != "order")))
                print(f"{path} {path.stat().st_size / 1000:.0f} kB")


def show(page: Page, url: str, name: str) -> None:
    """Bring up the page called `name`."""
    page.goto("about:blank")
    page.goto(f"{url}/#/{PAGES[name]}")
    page.locator("main h1").wait_for()
    if name in TELLING:
        # One that has something to show, else the first.
        rows = page.locator("main tbody tr")
        telling = rows.filter(has_text=TELLING[name])
        links = (telling if telling.count() else rows).locator("th a")
        if not links.count():
            return
        links.first.click()
        page.locator("main .crumbs").wait_for()
    if name == "version" and page.locator("article summary").count():
        page.locator("article summary").first.click()
    if name == "order":
        page.get_by_role("button", name=re.compile("Freeze…|Thaw…")).click()
        page.get_by_label("Reason").fill("incident 4711: the flight desk answers with old prices")
    page.wait_for_timeout(150)


def small(png: bytes) -> bytes:
    """`png` with a palette and at most two screens high: a page has a few dozen colours."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image = image.crop((0, 0, image.width, min(image.height, 2 * HEIGHT)))
    out = io.BytesIO()
    image.quantize(200, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
