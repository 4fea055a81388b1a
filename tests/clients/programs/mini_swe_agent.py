"""mini-swe-agent, a coding agent: one tool, which runs commands; every observation is a message."""

import os

os.environ |= {"MSWEA_SILENT_STARTUP": "1", "MSWEA_COST_TRACKING": "ignore_errors"}

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models import get_model
from shared import TASKS


def run(key, model, streaming):
    import yaml
    from minisweagent.config import get_config_path

    config = yaml.safe_load(get_config_path("mini").read_text())
    told = {
        "model_name": f"openai/{model}",
        "model_kwargs": {"api_key": key, "api_base": os.environ["OPENAI_BASE_URL"]},
    }
    agent = DefaultAgent(
        get_model(config={**config["model"], **told}),
        LocalEnvironment(**{**config.get("environment", {}), "cwd": os.environ["HOME"]}),
        **{**config["agent"], "step_limit": 8},
    )
    return [agent.run(task) for task in TASKS[model]]
