"""What `evolved learner inspect` shows, and what hostile text cannot do."""

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from actors.messages import Handoff, encode_batch
from daemon.cli.main import main
from daemon.demo.worlds import WORLDS
from learner.credit import CreditSettings
from learner.errors import BatchFileInvalid
from learner.inspect import Known, TrajectoryView, decoder, inspect
from learner.inspect_terminal import about_steps, show
from learner.settings import LearnerSettings
from tests.unit.learner.maker import acted, item, row, with_run

SETTINGS = LearnerSettings(credit=CreditSettings(alpha=0.0))
TOKENIZER = WORLDS["travel"].warm_start / "tokenizer.json"
HOSTILE = "ok \x1b[2J<script>alert(1)</script>\u202e\x00\x9b \"'>&"


def ids(text):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(TOKENIZER)).encode(text, add_special_tokens=False).ids


@pytest.fixture
def order(tmp_path):
    """A guided success and a failure of one group, a run without an outcome, one with a ragged row, one unfit."""
    system, lesson, ask = ids("<|im_start|>system\nTravel desk."), ids("\nuse buy"), ids("<|im_end|>\n")
    said, seen = ids('{"name": "buy"}<|im_end|>'), ids(f"\n<|im_start|>tool\n{HOSTILE}<|im_end|>\n")

    def made(*, hint):
        prompt = [*system, *(lesson if hint else []), *ask, *[ids("Oslo")[0]] * 100]
        steps = [-1] * len(prompt) + [0] * len(said) + [-1] * len(seen) + [1] * len(said)
        span = (len(system), len(system) + len(lesson)) if hint else (0, 0)
        return row([*prompt, *said, *seen, *said], steps, version=0, hint=span)

    items = [
        item(1.0, "+-", id="guided", group="g", rows=[made(hint=True)], experience_ids=("x",)),
        item(0.0, "-?", id="plain", group="g", rows=[made(hint=False)]),
        item(None, "+", id="unknown", rows=[made(hint=False)]),
        item(1.0, "+", id="ragged", group="h", rows=[row([1, 2], [0])]),
        item(0.0, "+", id="unfit", group="h", trainable=False),
    ]
    path = tmp_path / "o.batch"
    path.write_bytes(encode_batch(items))
    return path


def looked(path, **kwargs):
    return inspect(path, SETTINGS, Known(), decoder(TOKENIZER), **kwargs)


def test_an_orders_tokens_have_the_advantages_that_the_learner_would_give_them(order):
    found = looked(order)
    guided, plain = found.trajectories[:2]
    assert (guided.advantages, plain.advantages) == ((1.0, 1.0), (-1.0, -1.0))
    (one,), (other,) = guided.rows, plain.rows
    trained = [token for token in one.tokens if token.trained]
    assert {(token.step, token.advantage, round(token.clip_high, 3)) for token in trained} == {
        (0, 1.0, 0.6), (1, 1.0, 0.6),
    }  # fmt: skip
    assert {round(token.clip_high, 3) for token in other.tokens if token.trained} == {0.28}
    assert "".join(token.text for token in one.tokens if token.cut) == "\nuse buy"
    reasons = {
        view.item.attributed.trajectory.id: view.reason or next((row.reason for row in view.rows), "")
        for view in found.trajectories
    }
    assert reasons == {
        "guided": "", "plain": "", "unknown": "no_outcome", "ragged": "ragged", "unfit": "not_trainable",
    }  # fmt: skip
    assert found.dropped == {"no_outcome": 1, "not_trainable": 1, "ragged": 1}
    few = looked(order, limit=2)
    assert (len(few.trajectories), few.notes[-1]) == (2, "3 more are not shown")


def test_text_is_whole_though_characters_span_tokens_and_unknown_ids_are_named():
    text = "naïve 漢字 🛫 to:Oslo"
    assert "".join(decoder(TOKENIZER)(ids(text))) == text
    assert decoder(TOKENIZER)([10**6]) == ["⟨1000000: no such token⟩"]
    assert decoder(None)([3, 70000]) == ["3 ", "70000 "]


@pytest.mark.parametrize("content", [b"", b"no batch at all", b"\x80\0\0\0\0\0\0\0{oops", b"{}"])
def test_a_file_that_is_no_batch_is_refused_by_name(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BatchFileInvalid, match="x"):
        looked(tmp_path / "x")


def test_the_terminal_shows_good_tokens_green_and_bad_ones_red_and_hostile_text_does_nothing(order):
    def shown(**kwargs):
        out = io.StringIO()
        show(looked(order), Console(file=out, force_terminal=True, color_system="truecolor", width=100), **kwargs)
        return out.getvalue()

    text, full = shown(), shown(full=True)
    good, bad = "48;2;0;160;60", "48;2;200;30;40"
    guided, plain = (text.index(f"\n{name}\n") for name in ("guided", "plain"))
    assert good in text[guided:plain]
    assert bad not in text[guided:plain]
    assert bad in text[plain:]
    assert "not trained on: no_outcome" in text
    assert full.count("Oslo") > 2 * text.count("Oslo"), "long contexts are shortened"
    escapes = re.findall(r"\x1b[^m]*m?", full)
    assert all(re.fullmatch(r"\x1b\[[0-9;]*m", escape) for escape in escapes), "colours and nothing else"
    assert "␛[2J" in full
    assert not {"\u202e", "\x00", "\x9b"} & set(full)


def test_a_step_says_who_acted_where_several_agents_did():
    handoffs = (Handoff(source="planner#1", target=HOSTILE, step=1),)
    several = with_run(acted(item(1.0, "+-"), "planner#1", HOSTILE), handoffs=handoffs)
    first, second = about_steps(TrajectoryView(several, (), (1.0, -1.0), ""))
    assert first == "step 0: planner#1 GOOD +1.000"
    assert "\x1b" not in second


def test_the_command_needs_no_torch_and_knows_what_is_not_there(order, capsys, tmp_path):
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import learner.fit, daemon.cli.planning\n"  # nor do the figures of what fits
        f"from daemon.cli.main import main\nsys.exit(main(['learner', 'inspect', {str(order)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "guided" in done.stdout) == (0, True), done.stderr
    assert main(["learner", "inspect", str(order), "--trajectory", "nobody"]) == 1
    assert "nobody" in capsys.readouterr().err
    assert main(["learner", "inspect", str(tmp_path / "absent")]) == 2
