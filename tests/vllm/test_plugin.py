"""The plug-in on vLLM's own reload code, where a server would be lost if it went wrong."""

import json
from pathlib import Path

from tests.support.process import run
from tests.vllm.conftest import PYTHON


def test_a_reload_that_broke_off_is_undone_and_the_next_good_one_takes() -> None:
    script = Path(__file__).with_name("broken_reload.py")
    ran = run([PYTHON, script])
    ran.check_returncode()
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "broke_off": True,
        "on_meta": True,
        "on_meta_after": False,
        "untouched_layer_is_old": True,
        "good_reload_takes": True,
    }
