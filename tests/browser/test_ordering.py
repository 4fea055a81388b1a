"""Orders are given by who means it, and the page shows what came of them, without losing the reader's place."""

import re
from typing import Any

from playwright.sync_api import Browser, expect

from tests.browser.conftest import Served, Window


def asked(window: Window, served: Served, path: str) -> Any:
    """What the control API answers."""
    return window.context.request.get(f"{served.url}/api/{path}").json()


def test_a_dead_letter_is_put_back_and_goes_from_the_list(ordered: Served, window: Window) -> None:
    page = window.open(ordered, "dead")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("link", name="Dead letters")).to_contain_text("2")
    page.get_by_role("button", name=re.compile("Retry curator")).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("status")).to_contain_text("Put back; should it fail again, it comes back here")
    assert [each["actor"] for each in asked(window, ordered, "dead")] == ["navigator"]
    page.get_by_role("button", name=re.compile("Retry navigator")).click()
    expect(page.get_by_text("Nothing is parked.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_freezing_wants_a_reason_and_can_be_thought_better_of_all_by_keyboard(ordered: Served, window: Window) -> None:
    page = window.open(ordered)
    freeze = page.get_by_role("button", name="Freeze…")
    freeze.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Freeze learning?")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(freeze).to_be_focused()
    assert not asked(window, ordered, "status")["frozen"]

    page.keyboard.press("Enter")
    page.keyboard.type("   ")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("Say why")
    assert not asked(window, ordered, "status")["frozen"]

    page.keyboard.type("incident 4711")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Learning is frozen")
    expect(page.locator("#state")).to_contain_text("learning is frozen")
    status = asked(window, ordered, "status")
    assert (status["frozen"], status["last_directive"]["reason"].strip()) == (True, "incident 4711")

    page.get_by_role("button", name="Thaw…").click()
    page.get_by_label("Reason").fill("mended")
    page.get_by_role("button", name="Thaw learning").click()
    expect(page.get_by_role("button", name="Freeze…")).to_be_visible()
    assert not asked(window, ordered, "status")["frozen"]


def test_a_rollback_goes_where_it_was_confirmed_to_go(ordered: Served, window: Window) -> None:
    page = window.open(ordered, "versions")
    page.get_by_role("button", name="Roll back…").click()
    dialog = page.get_by_role("dialog", name="Roll back v3?")
    choices = dialog.get_by_label("Go back to").locator("option").all_inner_texts()
    assert choices == ["v1", "v0"], "v2 was taken back, v3 serves"
    dialog.get_by_role("button", name="Cancel").click()
    assert asked(window, ordered, "status")["fleet"]["stable"] == 3

    page.get_by_role("button", name="Roll back…").click()
    dialog.get_by_label("Go back to").select_option("v1")
    dialog.get_by_label("Reason").fill("answers are slow")
    dialog.get_by_role("button", name="Roll back v3").click()
    expect(page.get_by_role("status")).to_contain_text("back from v3 to v1")
    expect(page.get_by_role("row", name=re.compile("^v1"))).to_contain_text("serves")
    expect(page.get_by_role("row", name=re.compile("^v3"))).to_contain_text("control: answers are slow")
    assert asked(window, ordered, "status")["fleet"]["stable"] == 1


def test_a_refused_order_says_why_in_its_dialog(ordered: Served, window: Window) -> None:
    page = window.open(ordered)
    page.get_by_role("button", name="Freeze…").click()
    (ordered.directory / "FREEZE").write_text("by hand, in the cellar\n")
    page.get_by_label("Reason").fill("incident")
    page.get_by_role("button", name="Freeze learning").click()
    expect(page.locator("#state")).to_contain_text("kill switch: by hand, in the cellar")
    expect(page.get_by_role("button", name="Thaw…")).to_have_count(0)
    (ordered.directory / "FREEZE").unlink()
    page.get_by_role("button", name="Thaw…").click()
    (ordered.directory / "FREEZE").write_text("again\n")
    page.get_by_label("Reason").fill("mended")
    page.get_by_role("button", name="Thaw learning").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("the kill switch is on (again)")
    window.errors = [each for each in window.errors if "409" not in each]


def test_a_lesson_is_approved_and_retired_with_a_reason(ordered: Served, window: Window) -> None:
    page = window.open(ordered, "experience/lesson-candidate")
    page.get_by_role("button", name="Approve…").click()
    page.get_by_label("Reason").fill("read it")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("the lesson is active now")
    revisions = page.get_by_role("table", name="Revisions, newest first")
    expect(revisions.locator("tbody tr").first).to_contain_text("read it")
    page.get_by_role("button", name="Retire…").click()
    page.get_by_label("Reason").fill("changed my mind")
    page.get_by_role("button", name="Retire", exact=True).click()
    expect(revisions.locator("tbody tr")).to_have_count(3)
    assert asked(window, ordered, "experience/lesson-candidate")["lesson"]["state"] == "retired"


def test_a_refresh_leaves_the_reader_where_they_are(ordered: Served, window: Window) -> None:
    page = window.open(ordered)
    summary = page.get_by_text("What the store counts").first
    summary.click()
    page.get_by_role("cell", name="2", exact=True).last.scroll_into_view_if_needed()
    summary.focus()
    where = page.evaluate("scrollY")
    assert where > 0
    window.context.request.post(f"{ordered.url}/api/freeze", data={"reason": "from elsewhere"})
    expect(page.locator("#state")).to_contain_text("from elsewhere")
    expect(page.get_by_role("region", name="Sentinel and orders")).to_contain_text("from elsewhere")
    expect(summary).to_be_focused()
    assert page.locator("details[open]").count() == 1
    assert abs(page.evaluate("scrollY") - where) < 60

    window.open(ordered, "trajectories")
    page.get_by_label("Goal or id").fill("half a wo")
    window.context.request.post(f"{ordered.url}/api/thaw", data={"reason": "over"})
    expect(page.locator("#state")).not_to_contain_text("frozen")
    expect(page.get_by_label("Goal or id")).to_have_value("half a wo")
    expect(page.get_by_label("Goal or id")).to_be_focused()


def test_a_hidden_or_paused_page_does_not_ask(full: Served, window: Window) -> None:
    page = window.open(full)
    asked_for = list[str]()
    page.on("request", lambda request: asked_for.append(request.url))
    event = """hidden => {
        Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(event, True)
    asked_for.append("what is under way")
    while asked_for:  # until it has ended
        asked_for.clear()
        page.wait_for_timeout(1500)
    page.wait_for_timeout(5500)
    assert asked_for == []
    with page.expect_request(re.compile("/api/status")):
        page.evaluate(event, False)
    page.get_by_role("button", name="Pause updates").click()
    expect(page.get_by_role("button", name="Resume updates")).to_be_visible()
    expect(page.locator("#state")).to_contain_text("paused at")


def test_an_empty_system_behind_an_admin_key_says_on_every_page_what_to_do(empty: Served, browser: Browser) -> None:
    shut = browser.new_context()
    answer = shut.request.get(empty.url)
    assert (answer.status, "www-authenticate" in answer.headers) == (401, True)
    shut.close()

    context = browser.new_context(http_credentials={"username": "anyone", "password": empty.key})
    window = Window(context)
    page = window.open(empty)
    told = {
        "": "Point your agents' base URL at the tap",
        "trajectories": "Point agents at the tap",
        "versions": "No version yet.",
        "experience": "evolved experience add",
        "adapters": "evolved adapters add",
        "judge": "report outcomes",
        "dead": "Nothing is parked.",
    }
    for path, words in told.items():
        window.open(empty, path)
        expect(page.locator("main")).to_contain_text(words)
    window.open(empty)
    expect(page.get_by_role("button", name="Roll back…")).to_be_disabled()
    page.get_by_role("button", name="Freeze…").click()
    page.get_by_label("Reason").fill("before it begins")
    page.get_by_role("button", name="Freeze learning").click()
    expect(page.get_by_role("status")).to_contain_text("before it begins")
    order = asked(window, empty, "status")["last_directive"]
    assert order["details"]["by"] == empty.key[4:16], "the key that it came with"
    context.close()


def test_a_daemon_that_goes_away_is_told_of_and_what_was_seen_stays(ordered: Served, window: Window) -> None:
    page = window.open(ordered, "versions")
    ordered.stop()
    expect(page.locator("#trouble")).to_contain_text("Agents are not affected")
    expect(page.get_by_role("row", name=re.compile("^v3"))).to_be_visible()
    window.errors.clear()  # of Chromium, about each request without an answer
