"""Writes tasks of our own in AppWorld's disk format; runs in .venv-appworld, imports nothing of ours.

    synthetic.py ROOT

`ROOT/data` gets four tasks about mail accounts and notes, two of them for training, with empty databases and the API
documentation that the installed package makes. All of it is for a temporary directory, never for the repository.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
ADA = {
    "first_name": "Ada", "last_name": "Lane", "email": "ada@example.com", "phone_number": "5550001",
    "birthday": "1990-01-01",
}  # fmt: skip
ACCOUNT = "assert there is a mail account of the supervisor."
NOBODY = "assert nobody else has a mail account."
ANSWER = "assert answers match."
SIGN_UP = f"""
def evaluate(test, models, ground_truth_answer, **_):
    with test({ACCOUNT!r}):
        assert any(user.email == "ada@example.com" for user in models.end.gmail.User.all())
    with test({NOBODY!r}):
        assert all(user.email == "ada@example.com" for user in models.end.gmail.User.all())
"""
QUESTION = f"""
import json

def evaluate(test, models, ground_truth_answer, **_):
    with test({ANSWER!r}):
        test.answer(json.loads(models.end.supervisor.Task.all()[0].answer), ground_truth_answer)
"""
TASKS = {
    "aaaaaa1_1": ("Sign up for a mail account with my address.", 1, None, SIGN_UP),
    "aaaaaa1_2": ("What is my phone number?", 2, "5550001", QUESTION),
    "bbbbbb2_1": ("Open a mail account for me.", 1, None, SIGN_UP),
    "bbbbbb2_2": ("What is my e-mail address?", 3, "ada@example.com", QUESTION),
}
LABELS = {
    SIGN_UP: [(ACCOUNT, "no_op_fail"), (NOBODY, "no_op_pass")],
    QUESTION: [(ANSWER, "no_op_fail")],
}


def main() -> None:
    os.environ["APPWORLD_ROOT"] = str(ROOT)
    from appworld.apps import get_all_apps
    from appworld.apps.api_lib import save_local_dbs
    from appworld.apps.model_lib import get_db_home_path
    from appworld.collections.api_docs import ApiDocCollection
    from appworld.collections.models import ModelCollection
    from appworld.common.constants import DB_VERSION, DEFAULT_SYSTEM_DATETIME

    data = ROOT / "data"
    for app, docs in ApiDocCollection.build().items():
        kept = {name: {**doc, "canary_string": ""} for name, doc in docs.items()}
        write(data / "api_docs" / "standard" / f"{app}.json", json.dumps(kept))
    memory = get_db_home_path(storage_type="memory", type="base")
    apps = get_all_apps()
    models = ModelCollection.load(to_db_home_path=memory, from_db_home_path=memory, load_apps=apps, create_db=True)
    models.admin.MainUser(**ADA).save()
    models.supervisor.Supervisor(**ADA).save()
    active = models.supervisor.Task(supervisor_id=1, instruction="?")
    active.save()
    full = {"to_db_home_path": str(data / "base_dbs")}
    save_local_dbs(from_db_home_path=memory, format="full", delete_if_exists=True, app_names=list(apps), **full)
    for id, (instruction, difficulty, answer, evaluation) in TASKS.items():
        task = data / "tasks" / id
        active.instruction = instruction
        active.save()
        save_local_dbs(
            from_db_home_path=memory, to_db_home_path=str(task / "dbs"), format="full", delete_if_exists=True,
            app_names=list(apps),
        )  # fmt: skip
        specs = {
            "instruction": instruction, "supervisor": ADA, "datetime": DEFAULT_SYSTEM_DATETIME.isoformat(),
            "db_version": DB_VERSION,
        }  # fmt: skip
        write(task / "specs.json", json.dumps(specs))
        truth = task / "ground_truth"
        metadata = {
            "mode": "minimal", "difficulty": difficulty, "num_apps": 1, "num_apis": 1, "num_api_calls": 1,
            "num_solution_code_lines": 1,
        }  # fmt: skip
        tests = [{"requirement": requirement, "label": label} for requirement, label in LABELS[evaluation]]
        write(truth / "metadata.json", json.dumps(metadata))
        write(truth / "public_data.json", "{}")
        write(truth / "private_data.json", "{}")
        write(truth / "test_data.json", json.dumps(tests))
        write(truth / "answer.json", json.dumps(answer))
        write(truth / "evaluation.py", evaluation)
    write(data / "datasets" / "train.txt", "aaaaaa1_1\naaaaaa1_2\n")
    write(data / "datasets" / "dev.txt", "bbbbbb2_1\nbbbbbb2_2\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


main()
