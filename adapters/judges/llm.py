"""`LlmJudge`: step labels by any model behind an OpenAI-compatible endpoint, a local vLLM included.

    trajectory -> windows -> prompt -> endpoint -> parsing -> screening -> labels

One call labels all steps of a window. Nothing is ever guessed: refusals, garbage, partial and misnumbered answers are
ABSTAIN on the steps that they leave open, each counted by reason in `counts`. Only an endpoint that cannot be reached
is `ModelUnavailable`. Labels of different models are not comparable, so the model that answered is part of the rubric.
"""

import random
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from actors.messages import Attribution, Step, StepLabel, Trajectory
from actors.ports.errors import ModelUnavailable
from actors.ports.models import Judge
from adapters.chat.endpoint import ChatEndpoint, Reply
from adapters.chat.keys import read_key
from adapters.chat.quoting import fresh_mark
from adapters.chat.settings import EndpointSettings, settings_of
from adapters.judges import prompt
from adapters.judges.canaries import CanaryJudge
from adapters.judges.parsing import abstention, read
from adapters.judges.rules import SUCCESS
from adapters.judges.screening import agent_speaks, lacks_content, speaks_to_judge
from adapters.judges.windows import Shape, Window, windows


class LlmSettings(EndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the judge "llm"."""

    name: str = "llm"
    """Stands in `Attribution.judge`; give two of them different ones."""
    patience: float = 100.0
    """Seconds for one trajectory, all calls and attempts included; keep it below the attributor's 120 s."""
    shape: Shape = Shape()
    screen: bool = True
    """Where the log speaks to its judge, its author gains nothing by it (`screening`)."""
    canary_share: float = 0.02
    """Trajectories of known credit sent along, as a share of the real ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name or not self.patience > 0 or not 0.0 <= self.canary_share <= 1.0:
            raise ValueError("name must not be empty, patience above 0 and canary_share from 0 to 1")


class LlmJudge:
    """A `Judge`; `aclose()` at the end."""

    def __init__(
        self,
        settings: LlmSettings,
        *,
        key: str = "",
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._endpoint = ChatEndpoint(settings, key=key, rng=rng or random.Random(), clock=time.time)
        self._prompt = prompt.rubric_of(settings.shape)
        self.name = settings.name
        self.rubric = f"{self._prompt}@{settings.model}"
        self.counts: Counter[str] = self._endpoint.counts
        """How often what happened. Judgements: `answered`. Windows without a label: `refused`, `rejected`, `too_long`,
        `too_large`, `not_json`, `empty`, `unparsable`, `truncated`, `wrong_mark`, `misnumbered`, `screened`. Steps:
        `missing`, `duplicate`, `malformed`, `content_free`, `beyond_windows`, `out_of_time`. The endpoint: `requests`,
        `retried`, `timeout`, `unavailable`, `model_changed`, `usage_estimated`, `status_NNN`, `speaks_MODE`."""
        self.tokens = 0
        """Spent in all, judgements that came to nothing included."""
        self.cost = 0.0

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    async def label(self, trajectory: Trajectory) -> Attribution:
        """One label a step.

        Raises:
            ModelUnavailable: the endpoint does not answer, asks for patience, or refuses key, path or model.
        """
        labels = [abstention("beyond_windows")] * len(trajectory.steps)
        asked: list[list[prompt.Message]] = []
        marks: list[str] = []
        models: dict[str, None] = {}
        tokens, cost = 0, 0.0
        deadline = anyio.current_time() + self._settings.patience
        cut = windows(trajectory, self._settings.shape)
        self.counts["beyond_windows"] += cut[0].numbers[0] if cut else 0
        for window in cut:
            if self._told_what_to_say(trajectory, window):
                self.counts["screened"] += 1
                label = StepLabel("ABSTAIN", 0.0, "a tool or a user speaks to the judge")
                labels[window.numbers.start : window.numbers.stop] = [label] * len(window.steps)
                continue
            mark = fresh_mark([trajectory])
            messages = prompt.compose(trajectory, window, self._settings.shape, mark)
            try:
                reply = await self._endpoint.ask(messages, prompt.SCHEMA, deadline)
            except ModelUnavailable:
                # A long trajectory at a slow endpoint would otherwise be asked about for ever.
                if not asked or anyio.current_time() < deadline:
                    raise
                for number in range(window.numbers[0], len(labels)):
                    labels[number] = abstention("out_of_time")
                self.counts["out_of_time"] += len(labels) - window.numbers[0]
                break
            self.tokens += reply.tokens
            self.cost += reply.cost
            tokens, cost = tokens + reply.tokens, cost + reply.cost
            if reply.model:
                models[reply.model] = None
            asked.append(messages)
            marks.append(mark)
            for number, label in self._labels(trajectory, window, reply, mark).items():
                labels[number] = label
        self.counts["answered"] += 1
        if models:
            self.rubric = f"{self._prompt}@{'+'.join(models)}"
        return Attribution(
            labels=tuple(labels), judge=self.name, rubric=self.rubric, prompt_hash=prompt.hash_of(asked, marks),
            tokens=tokens, cost=cost,
        )  # fmt: skip

    def _labels(self, trajectory: Trajectory, window: Window, reply: Reply, mark: str) -> Mapping[int, StepLabel]:
        if reply.problem:
            self.counts[reply.problem] += 1
            return dict.fromkeys(window.numbers, abstention(reply.problem))
        reading = read(reply.content, numbers=window.numbers, mark=mark, truncated=reply.truncated)
        self.counts.update(reading.problems)
        talks = self._settings.screen and any(map(agent_speaks, _steps(trajectory, window)))
        self.counts["screened"] += talks
        return {number: self._sober(trajectory, number, label, talks) for number, label in reading.labels.items()}

    def _told_what_to_say(self, trajectory: Trajectory, window: Window) -> bool:
        """Whether a user or a tool speaks to the judge."""
        # What stood in an earlier window is in no later one: its outline holds names of tools alone.
        said = [trajectory.goal, *(step.observation for step in _steps(trajectory, window))]
        return self._settings.screen and any(map(speaks_to_judge, said))

    def _sober(self, trajectory: Trajectory, number: int, label: StepLabel, talks: bool) -> StepLabel:
        """`label`, unless it praises one who speaks to the judge, or an answer that says nothing."""
        if label.label != "GOOD":
            return label
        if talks:
            return StepLabel("ABSTAIN", 0.0, f"the agent speaks to its judge, who said: {label.reason}"[:200])
        # A success that somebody saw stands for itself.
        succeeded = trajectory.outcome is not None and trajectory.outcome >= SUCCESS
        if succeeded or not lacks_content(trajectory.steps[number], trajectory):
            return label
        self.counts["content_free"] += 1
        return StepLabel("ABSTAIN", 0.0, f"an answer without content; the judge said: {label.reason}"[:200])


def _steps(trajectory: Trajectory, window: Window) -> Sequence[Step]:
    return trajectory.steps[window.numbers.start : window.numbers.stop]


def make(**options: Any) -> Judge:
    """The judge that `[judge.options]` describes, with its canaries.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    settings = settings_of(LlmSettings, options)
    judge = LlmJudge(settings, key=read_key(settings.key_env, settings.key_file))
    if not settings.canary_share:
        return judge
    rng = random.Random(secrets.randbits(64))  # nobody may foresee which judgement has a witness
    return CanaryJudge(judge, share=settings.canary_share, rng=rng)
