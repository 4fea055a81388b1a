"""Who reads the dashboard finds the way from a curve down to a token, and sees what is there, as it is written."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Served, Window
from tests.browser.hostile import HOSTILE

PAGES = (
    "", "trajectories", "trajectories/run001", "trajectories/hostile", "versions", "versions/2", "experience",
    "experience/lesson-quarantined", "adapters", "judge", "dead",
)  # fmt: skip


def heading(page: Page, name: str | re.Pattern[str]) -> None:
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def test_the_way_leads_from_the_overview_to_a_token_and_on_to_what_came_of_it(full: Served, window: Window) -> None:
    page = window.open(full)
    heading(page, "Overview")
    chart = page.get_by_role("img", name=re.compile("Success went from .* 3 swaps, 1 rollback"))
    expect(chart).to_be_visible()

    page.get_by_role("link", name="Trajectories").click()
    heading(page, "Trajectories")
    page.get_by_label("Source").select_option("production")
    page.get_by_label("Goal or id").fill("request 1")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("status")).to_contain_text("trajectories on this page")
    expect(page.get_by_role("row", name=re.compile("sandbox"))).to_have_count(0)
    page.get_by_role("link", name=re.compile("request 1$")).click()
    heading(page, re.compile("request 1$"))

    steps = page.get_by_role("table", name="Steps with their credit and tokens")
    first = steps.get_by_role("row", name=re.compile("search_flights"))
    expect(first).to_contain_text("GOOD, 92 % sure")
    expect(first).to_contain_text("its result was used by step 2")
    expect(first).to_contain_text("8 sampled of 42 by v0")
    expect(first).to_contain_text("log-prob: mean -0.18, least -0.35")
    expect(first).to_contain_text("trained on")
    last = steps.get_by_role("row", name=re.compile("Your flight is booked"))
    expect(last).to_contain_text("ABSTAIN")
    expect(last).to_contain_text("credit from the outcome alone")

    lineage = page.get_by_role("region", name="Lineage")
    expect(lineage).to_contain_text("promote")
    expect(lineage).to_contain_text("trained into v1")
    lineage.get_by_role("link", name="v1", exact=True).first.click()
    heading(page, "Version v1")
    page.get_by_text("10 measurements").click()
    expect(page.get_by_role("row", name=re.compile("incumbent_difference"))).to_contain_text("0.1")
    expect(page.get_by_text("signature good")).to_be_visible()

    page.get_by_role("link", name="Policy versions").first.click()
    heading(page, "Policy versions")
    second = page.get_by_role("row", name=re.compile("^v2"))
    expect(second).to_contain_text("58 ms")
    expect(second).to_contain_text("sentinel: success fell by 0.31 after v2")

    page.get_by_role("link", name="Experience").click()
    page.get_by_role("link", name="book a flight").click()
    heading(page, "book a flight")
    expect(page.get_by_text("17 of 20 (85 %)")).to_be_visible()
    page.get_by_role("link", name=re.compile("request 1$")).click()
    heading(page, re.compile("request 1$"))

    page.get_by_role("link", name="Adapters").click()
    row = page.get_by_role("row", name=re.compile("^sums"))
    expect(row).to_contain_text("only what is known to read")
    page.get_by_role("button", name="Test sums").click()
    expect(page.get_by_role("status")).to_contain_text("sums answers: 1 tool")

    page.go_back()
    heading(page, re.compile("request 1$"))


def test_a_curve_can_be_read_as_a_table(full: Served, window: Window) -> None:
    page = window.open(full)
    page.get_by_text("The same as tables").click()
    numbers = page.get_by_role("table", name=re.compile("Success of production trajectories"))
    counts = numbers.locator("tbody td:last-child").all_inner_texts()
    assert sum(int(each) for each in counts) == 41
    events = page.get_by_role("table", name="What happened meanwhile")
    expect(events.get_by_role("row", name=re.compile("rollback: success fell"))).to_have_count(1)
    expect(events.get_by_role("row", name=re.compile("v4 rejected"))).to_have_count(1)


def test_the_overview_says_what_learning_waits_for_and_from_which_agents_there_is_none(
    full: Served, window: Window
) -> None:
    page = window.open(full)
    expect(page.locator("#state")).to_contain_text("learning: waiting")
    section = page.get_by_role("region", name="Learning", exact=True)
    expect(section).to_contain_text("5 of 8 outcomes for the next update since 09:10 UTC.")
    expect(section).to_contain_text("What to change: report how runs went: POST /v1/feedback.")
    expect(section.get_by_role("row", name=re.compile("default, desk"))).to_contain_text("Learning: 12 of 12 runs")


def test_the_list_goes_back_page_by_page_and_every_trajectory_is_on_one_of_them(full: Served, window: Window) -> None:
    page = window.open(full, "trajectories")
    seen = list[str]()
    while True:
        seen += [each.get_attribute("href") or "" for each in page.locator("tbody th a").all()]
        older = page.get_by_role("link", name="Older")
        if not older.count():
            break
        before = seen[-1]
        older.click()
        expect(page.locator(f'tbody th a[href="{before}"]')).to_have_count(0)
    assert len(seen) == len(set(seen)) == 62


def test_what_agents_and_tools_wrote_is_text_wherever_it_stands(full: Served, window: Window) -> None:
    page = window.page
    for path in ("", "trajectories", "trajectories/hostile", "experience", "experience/lesson-quarantined", "dead"):
        window.open(full, path)
        shown = HOSTILE.partition("<script>")[0]
        expect(page.locator("main").get_by_text(shown).first).to_be_visible()
        assert page.locator("img").count() == 1, "the icon"
        assert page.locator("script").count() == 1, "ours"
        assert page.title() != "taken over"


def test_the_browser_is_told_to_run_nothing_but_ours(full: Served, window: Window) -> None:
    page = window.page
    answer = page.goto(f"{full.url}/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page.locator("main h1").wait_for()
    thrown = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>'; return '' } catch (error) { return error.name } }"
    )
    assert thrown == "TypeError"
    window.errors.clear()  # Chromium tells of the refusal, too


def test_what_is_not_there_is_said_with_the_way_back(full: Served, window: Window) -> None:
    page = window.open(full, "versions/99")
    heading(page, "Not found")
    expect(page.locator("main")).to_contain_text("no version 99")
    page.get_by_role("link", name="Back to the list").click()
    heading(page, "Policy versions")
    window.errors = [each for each in window.errors if "404" not in each]


def test_a_narrow_window_scrolls_in_one_direction_only(full: Served, window: Window) -> None:
    page = window.page
    page.set_viewport_size({"width": 360, "height": 700})
    for path in ("", "trajectories", "trajectories/hostile", "versions/2", "dead"):
        window.open(full, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
