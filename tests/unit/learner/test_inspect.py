"""What `evolved learner inspect` and `resume` show, and what hostile text cannot do."""

import io
import json
import re
import subprocess
import sys
from functools import partial

import msgspec
import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from actors.messages import Handoff, encode_batch
from daemon.cli.main import main
from daemon.demo.world import WARM_START
from daemon.upkeep.provenance import Provenance, ProvenanceSettings
from learner.checkpoints import Checkpoints
from learner.credit import CreditSettings
from learner.errors import BatchFileInvalid
from learner.inspect import Known, TrajectoryView, decoder, inspect, known, tokenizer_file
from learner.inspect_terminal import about_steps, show, visible
from learner.settings import LearnerSettings
from tests.unit.learner.maker import item, row

SETTINGS = LearnerSettings(credit=CreditSettings(alpha=0.0))
TOKENIZER = WARM_START / "tokenizer.json"
HOSTILE = "ok \x1b[2J<script>alert(1)</script>\u202e\x00 \"'>&"


def ids(text):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(TOKENIZER)).encode(text, add_special_tokens=False).ids


def trajectories():
    """A guided success and a failure of one group, a run without an outcome, and one with a ragged row."""
    system, lesson, ask = ids("<|im_start|>system\nTravel desk."), ids("\nuse buy"), ids("<|im_end|>\n")
    said, seen = ids('{"name": "buy"}<|im_end|>'), ids(f"\n<|im_start|>tool\n{HOSTILE}<|im_end|>\n")

    def made(*, hint):
        prompt = [*system, *(lesson if hint else []), *ask]
        steps = [-1] * len(prompt) + [0] * len(said) + [-1] * len(seen) + [1] * len(said)
        span = (len(system), len(system) + len(lesson)) if hint else (0, 0)
        return row([*prompt, *said, *seen, *said], steps, version=0, hint=span)

    return [
        item(1.0, "+-", id="guided", group="g", rows=[made(hint=True)], experience=["x"]),
        item(0.0, "-?", id="plain", group="g", rows=[made(hint=False)]),
        item(None, "+", id="unknown", rows=[made(hint=False)]),
        item(1.0, "+", id="ragged", group="h", rows=[row([1, 2], [0])]),
        item(0.0, "+", id="baseline", group="h", role="baseline"),
    ]


@pytest.fixture
def order(tmp_path):
    path = tmp_path / "o.batch"
    path.write_bytes(encode_batch(trajectories()))
    return path


def names(inspection):
    return [view.item.attributed.trajectory.id for view in inspection.trajectories]


def looked(path, **kwargs):
    return inspect(path, SETTINGS, kwargs.pop("known", Known()), decoder(TOKENIZER), **kwargs)


def test_an_orders_tokens_have_the_advantages_that_the_learner_would_give_them(order):
    found = looked(order)
    guided, plain = found.trajectories[:2]
    assert (guided.advantages, plain.advantages) == ((1.0, 1.0), (-1.0, -1.0))
    (one,), (other,) = guided.rows, plain.rows
    trained = [token for token in one.tokens if token.trained]
    assert {token.step for token in trained} == {0, 1}
    assert {token.advantage for token in trained} == {1.0}
    assert {round(token.clip_high, 3) for token in trained} == {0.6}
    assert {round(token.clip_high, 3) for token in other.tokens if token.trained} == {0.28}
    assert "".join(token.text for token in one.tokens if token.cut) == "\nuse buy"
    assert not any(token.trained for token in one.tokens if token.cut)
    assert found.largest == 1.0


def test_what_is_left_out_is_shown_with_its_reason(order):
    found = looked(order)
    reasons = {
        view.item.attributed.trajectory.id: view.reason or next((row.reason for row in view.rows), "")
        for view in found.trajectories
    }
    assert reasons == {
        "guided": "", "plain": "", "unknown": "no_outcome", "ragged": "ragged", "baseline": "baseline_only",
    }  # fmt: skip
    assert found.dropped == {"no_outcome": 1, "ragged": 1}


def test_text_is_whole_though_characters_span_tokens():
    text = "naïve 漢字 🛫 to:Oslo"
    pieces = decoder(TOKENIZER)(ids(text))
    assert "".join(pieces) == text
    assert len(pieces) == len(ids(text))


def test_without_a_tokenizer_the_ids_are_shown_and_ids_beyond_one_are_named(order):
    assert decoder(None)([3, 70000]) == ["3 ", "70000 "]
    assert decoder(TOKENIZER)([10**6]) == ["⟨1000000: no such token⟩"]
    assert inspect(order, SETTINGS, Known(), decoder(None)).trajectories[0].rows[0].tokens[0].text.endswith(" ")


@pytest.mark.parametrize("content", [b"", b"\xc1", b"no batch at all", b"\x80\0\0\0\0\0\0\0{oops", b"{}"])
def test_a_file_that_is_no_batch_is_refused_by_name(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BatchFileInvalid, match="x"):
        looked(tmp_path / "x")


def test_one_trajectory_and_a_limit(order):
    assert names(looked(order, name="pla")) == ["plain"]
    few = looked(order, limit=2)
    assert names(few) == ["guided", "plain"]
    assert few.notes[-1] == "3 more are not shown"


def shown(inspection, **kwargs):
    out = io.StringIO()
    show(inspection, Console(file=out, force_terminal=True, color_system="truecolor", width=100), **kwargs)
    return out.getvalue()


def test_the_terminal_shows_good_tokens_green_and_bad_ones_red(order):
    text = shown(looked(order))
    good, bad = "48;2;0;160;60", "48;2;200;30;40"
    guided, plain = (text.index(f"\n{name}\n") for name in ("guided", "plain"))
    assert good in text[guided:plain]
    assert bad not in text[guided:plain]
    assert bad in text[plain:]
    assert "not trained on: no_outcome" in text
    assert "experience at" in text


def test_hostile_text_does_nothing_on_a_terminal(order):
    text = shown(looked(order), full=True)
    escapes = re.findall(r"\x1b[^m]*m?", text)
    assert all(re.fullmatch(r"\x1b\[[0-9;]*m", escape) for escape in escapes), "colours and nothing else"
    assert "␛[2J" in text
    assert "\u202e" not in text
    assert "\x00" not in text


def test_long_contexts_are_shortened_unless_asked_for(tmp_path):
    long = row([7] * 500 + [8], [-1] * 500 + [0])
    items = [item(float(i), id=f"t{i}", group="g", rows=[long]) for i in range(2)]
    (tmp_path / "o").write_bytes(encode_batch(items))
    found = inspect(tmp_path / "o", SETTINGS, Known(), decoder(None))
    assert "452 tokens" in shown(found)
    assert shown(found, full=True).count("7 ") >= 1000


def test_control_and_formatting_characters_become_visible():
    assert visible("a\tb\n\x7f\x9b\u2066") == "a␉b\n␡⟨U+009B⟩⟨U+2066⟩"


def written(name, value, directory):
    save_file({"w": np.full(3, value, np.float32)}, directory / f"{name}.safetensors")
    return ()


def commit(state, base, *values):
    """A learner's state as it is on disk, signed with the node's own key."""
    provenance = Provenance(ProvenanceSettings(), state)
    checkpoints = Checkpoints(state, key=provenance.key("learner"), trusted=provenance.trusted("learner"))
    checkpoints.open(base, now=1.0)
    for value in values:
        checkpoints.commit(
            f"order{value}",
            save=partial(written, "model", value),
            save_state=partial(written, "optimizer", value),
            metrics={},
            now=2.0,
        )
    return checkpoints


@pytest.fixture
def base(tmp_path):
    directory = tmp_path / "warm"
    directory.mkdir()
    save_file({"w": np.zeros(3, np.float32)}, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps({"vocab_size": 60, "max_position_embeddings": 32}))
    (directory / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    return directory


def test_the_state_tells_versions_and_limits(tmp_path, base):
    commit(tmp_path / "state", base, 1, 2)
    found = known(LearnerSettings(), Checkpoints(tmp_path / "state"))
    assert (found.chain, found.newest, found.vocabulary, found.max_tokens) == ((0, 1, 2), 2, 60, 32)
    assert tokenizer_file(None, LearnerSettings(), Checkpoints(tmp_path / "state")).is_file()
    assert known(LearnerSettings(), Checkpoints(tmp_path / "nothing")) == Known()


def run(capsys, *arguments):
    code = main(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_inspect_needs_no_torch(order):
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['transformers'] = None\n"
        f"from daemon.cli.main import main\nsys.exit(main(['learner', 'inspect', {str(order)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "guided" in done.stdout) == (0, True), done.stderr


def check(capsys, state, *more, warm=""):
    settings = [f'state_dir="{state}"', f'learner.warm_start="{warm}"']
    flags = [part for setting in settings for part in ("--set", setting)]
    return run(capsys, "learner", "resume", "--check", *flags, *more)


def test_resume_says_where_it_stands(tmp_path, base, capsys):
    commit(tmp_path / "state", base, 1, 2)
    code, out, _ = check(capsys, tmp_path / "state", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["from"], found["version"], found["chain"], found["updates"]) == ("version", 2, [0, 1, 2], 2)
    assert found["orders"] == [{"id": "order1", "version": 1}, {"id": "order2", "version": 2}]
    assert (found["optimizer"], found["damaged"]) == (True, False)
    assert "stands at version 2" in check(capsys, tmp_path / "state")[1]


def test_resume_stops_at_a_damaged_state_and_says_what_to_do(tmp_path, base, capsys):
    commit(tmp_path / "state", base, 1, 2)
    (tmp_path / "state" / "versions" / "v000002" / "model.safetensors").write_bytes(b"x")
    code, out, err = check(capsys, tmp_path / "state", "--json")
    assert code == 2
    assert "content differs" in json.loads(out)["damaged_versions"]["2"]
    assert "bring v000002 back from a backup" in err
    assert "goes on from version 1" in err


def test_resume_stops_where_an_optimizer_is_lost_and_says_what_goes_on(tmp_path, base, capsys):
    commit(tmp_path / "state", base, 1, 2)
    (tmp_path / "state" / "learner" / "v000002" / "optimizer.safetensors").write_bytes(b"x")
    code, out, err = check(capsys, tmp_path / "state", "--json")
    assert code == 2
    assert (json.loads(out)["version"], json.loads(out)["optimizer"]) == (2, False)
    assert "learner/v000002: the optimizer's digest differs; bring it back from a backup" in err
    assert "goes on with an optimizer that starts afresh" in err


def test_resume_begins_from_the_warm_start_or_says_what_is_missing(tmp_path, base, capsys):
    code, out, _ = check(capsys, tmp_path / "state", warm=str(base))
    assert (code, f"version 0 will be made of {base}" in out) == (0, True)
    assert not (tmp_path / "state").exists()
    code, _, err = check(capsys, tmp_path / "state")
    assert (code, "learner.warm_start" in err) == (2, True)
    (base / "model.safetensors").write_bytes(b"x")
    assert check(capsys, tmp_path / "state", warm=str(base))[0] == 2


def test_the_plain_command_still_runs_the_learner():
    from daemon.cli.learner import run_learner
    from daemon.cli.main import parser

    arguments = parser().parse_args(["learner", "--config", "c.toml", "--set", "seed=3"])
    assert (arguments.run, str(arguments.config), arguments.set) == (run_learner, "c.toml", ["seed=3"])
    below = parser().parse_args(["learner", "--config", "c.toml", "resume"])
    assert str(below.config) == "c.toml", "an action does not overwrite what stands before it"


def test_a_step_says_who_acted_where_several_agents_did():
    one = item(1.0, "+-")
    run = one.attributed.trajectory
    roles = ("planner#1", HOSTILE)
    steps = tuple(msgspec.structs.replace(step, role=role) for step, role in zip(run.steps, roles, strict=True))
    run = msgspec.structs.replace(run, steps=steps, handoffs=(Handoff(source="planner#1", target=HOSTILE, step=1),))
    several = msgspec.structs.replace(one, attributed=msgspec.structs.replace(one.attributed, trajectory=run))
    first, second = about_steps(TrajectoryView(several, (), (1.0, -1.0), ""))
    assert first == "step 0: planner#1 GOOD +1.000"
    assert "\x1b" not in second
    assert about_steps(TrajectoryView(one, (), (1.0, -1.0), ""))[0] == "step 0: GOOD +1.000"


def test_the_command_knows_what_is_not_there(order, capsys, tmp_path):
    assert run(capsys, "learner", "inspect", str(order), "--tokenizer", str(WARM_START))[0] == 0
    code, _, err = run(capsys, "learner", "inspect", str(order), "--trajectory", "nobody")
    assert (code, "nobody" in err) == (1, True)
    assert run(capsys, "learner", "inspect", str(tmp_path / "absent"))[0] == 2
    assert run(capsys, "learner", "inspect", str(order), "--tokenizer", str(tmp_path))[0] == 2
