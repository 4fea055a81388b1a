"""Whoever cannot see, or has no mouse, uses the dashboard as well."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Served, Window
from tests.browser.test_reading import PAGES

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
FOCUSABLE = "a[href], button:not(:disabled), input, select, textarea, summary, [tabindex='0']"


def violations(window: Window) -> list[str]:
    """What axe-core finds against WCAG 2.2 AA and its own best practices."""
    window.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = window.page.evaluate("async () => (await axe.run()).violations")
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes']][:3]}" for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_nothing_to_say_of_any_page(full: Served, window: Window, scheme: str) -> None:
    page = window.page
    page.emulate_media(color_scheme=scheme)
    grounds = set[str]()
    for path in PAGES:
        window.open(full, path)
        page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
        assert violations(window) == [], path
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == {"rgb(244, 246, 248)" if scheme == "light" else "rgb(15, 20, 26)"}


def test_axe_has_nothing_to_say_of_a_dialog(full: Served, window: Window) -> None:
    page = window.open(full)
    page.get_by_role("button", name="Roll back…").click()
    expect(page.get_by_role("dialog", name="Roll back v3?")).to_be_visible()
    assert violations(window) == []


def test_everything_can_be_reached_with_the_tab_key_and_shows_that_it_has_the_focus(
    full: Served, window: Window
) -> None:
    page = window.page
    for path in ("", "trajectories?q=request+1", "dead"):
        window.open(full, path)
        page.get_by_role("button", name="Pause updates").click()
        expect(page.locator("#state")).to_contain_text("paused at")
        page.evaluate(
            "selector => [...document.querySelectorAll(selector)].filter(each => each.checkVisibility())"
            ".forEach((each, place) => (each.dataset.place = place))",
            FOCUSABLE,
        )
        wanted = set(page.locator("[data-place]").evaluate_all("all => all.map(each => each.dataset.place)"))
        page.locator(".skip").focus()
        reached = {page.evaluate("document.activeElement.dataset.place")}
        for _ in range(len(wanted) + 3):
            page.keyboard.press("Tab")
            place, outline = page.evaluate(
                "[document.activeElement.dataset.place ?? '', getComputedStyle(document.activeElement).outlineStyle]"
            )
            assert not place or outline != "none", place
            reached.add(place)
        assert wanted <= reached, path


def test_the_first_tab_offers_to_skip_the_navigation(full: Served, window: Window) -> None:
    page = window.open(full)
    page.evaluate("document.activeElement.blur()")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_a_new_page_takes_the_focus_to_its_heading_and_names_the_window(full: Served, window: Window) -> None:
    page = window.open(full)
    page.get_by_role("link", name="Judge").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Judge")).to_be_focused()
    expect(page).to_have_title("Judge · evolved")
    expect(page.get_by_role("link", name="Judge")).to_have_attribute("aria-current", "page")
