"""bfcl-eval's own `multi_turn_checker`, asked over lines of JSON; run by the interpreter that has bfcl-eval.

    python -I bfcl_official.py truths       the ground truth and the functions held back, by task
    python -I bfcl_official.py

In: {"task": id, "calls": [[[text, ...] a turn of the model, ...] a turn of the user, ...]}; out: {"valid",
"error_type"}. It evaluates the texts: feed it the benchmark's own calls only. Its instances are module globals by model
name and task, so each run has a name of its own, and they are dropped afterwards, or thousands would pile up.
"""

import contextlib
import itertools
import json
import os
import sys
from importlib.resources import files

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

data = files("bfcl_eval") / "data"
entries, truths = {}, {}
for name in ("base", "miss_func", "miss_param", "long_context"):
    file = f"BFCL_v4_multi_turn_{name}.json"
    for line in (data / file).read_text().splitlines():
        entries[json.loads(line)["id"]] = json.loads(line)
    for line in (data / "possible_answer" / file).read_text().splitlines():
        truths[json.loads(line)["id"]] = json.loads(line)["ground_truth"]
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
if sys.argv[1:] == ["truths"]:
    json.dump({task: [truths[task], entry.get("missed_function", {})] for task, entry in entries.items()}, out)
    sys.exit()
for number, line in zip(itertools.count(), sys.stdin):
    asked = json.loads(line)
    task = asked["task"]
    verdict = multi_turn_checker(asked["calls"], truths[task], entries[task], "", f"run{number}")
    out.write(json.dumps({"valid": verdict["valid"], "error_type": verdict.get("error_type", "")}) + "\n")
    out.flush()
    for instance in [key for key in vars(multi_turn_utils) if key.endswith("_instance")]:
        with contextlib.suppress(KeyError):
            del vars(multi_turn_utils)[instance]
