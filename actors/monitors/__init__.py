"""What the sentinel knows and concludes, one monitor a question, behind the port `Monitor`.

| module | asks |
|---|---|
| `versions` | does what serves do worse, please the judge alone, or behave otherwise than before the swap? |
| `tools` | have the tools changed under the agents? |
| `blocks` | do users ask for something else; does the judge say something else? |
| `engine` | does serving fail or slow down; does an engine stand still? |

`history` is what they look back on, `sequential` how they decide. docs/sentinel.md has the reasons and the error rates.
"""

from actors.monitors.base import SEVERITY, Action, Finding, Monitor
from actors.monitors.blocks import JudgeDrift, TrafficDrift
from actors.monitors.engine import EngineWatch
from actors.monitors.history import History, Remembered, Swap
from actors.monitors.runs import Run, is_error, summarize, tool_names
from actors.monitors.settings import MonitorSettings
from actors.monitors.tools import ToolDrift
from actors.monitors.versions import version_monitors

__all__ = [
    "SEVERITY",
    "Action",
    "EngineWatch",
    "Finding",
    "History",
    "JudgeDrift",
    "Monitor",
    "MonitorSettings",
    "Remembered",
    "Run",
    "Swap",
    "ToolDrift",
    "TrafficDrift",
    "is_error",
    "summarize",
    "tool_names",
    "version_monitors",
]
