"""A long trajectory is cut into windows, and in a prompt all of it stays behind the mark."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Step, ToolCall, Trajectory
from adapters.judges.prompt import compose
from adapters.judges.windows import Shape, windows
from tests.support.attacks import EMPTY, SEEN, UNSEEN
from tests.support.travelling import trajectory

TEXTS = st.text(max_size=400) | st.text(alphabet='<|>[]/INST:\n#-system\u200b\u202e\\"`{}', max_size=200)


def saying(*texts: str) -> Trajectory:
    """A run whose agent says and asks these, and is told them."""
    made = tuple(
        Step(exchange_id="e", text=text, tool_calls=(ToolCall("f", f'{{"note": "{text}"}}'),), observation=text)
        for text in texts
    )
    return msgspec.structs.replace(trajectory([], goal=texts[0]), steps=made)


@given(st.lists(TEXTS, min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 4))
def test_windows_hold_each_step_once_in_order_and_within_bounds(texts: list[str], steps: int, most: int):
    shape = Shape(field=100, step=300, window=2000, window_steps=steps, windows=most)
    found = windows(saying(*texts), shape)
    numbers = [shown.number for window in found for shown in window.steps]
    assert numbers == list(range(len(texts) - len(numbers), len(texts)))
    assert len(found) <= most
    assert all(len(window.steps) <= steps for window in found)
    assert all(len(window.before) <= shape.outline + 50 for window in found)
    if len(found) < most:
        assert len(numbers) == len(texts)


def test_in_a_prompt_every_line_begins_with_the_mark_and_no_attack_starts_one():
    for text in (*SEEN, *UNSEEN, *EMPTY):
        run = saying(text, text)
        for window in windows(run, Shape()):
            _, user = compose(run, window, Shape(), "c0ffee")
            assert all(line.startswith("c0ffee ") for line in user["content"].splitlines())
            assert "<" not in user["content"]
