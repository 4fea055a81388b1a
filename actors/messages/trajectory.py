"""A trajectory: what an agent did for one goal, step by step, and the credit that each step got."""

from typing import Literal

import msgspec

from actors.messages.base import Message
from actors.messages.sampling import Processing

Label = Literal["GOOD", "BAD", "ABSTAIN"]
Cut = Literal["", "length", "context"]
"""What ended an answer before its end: the limit of its tokens, or, of the last one, that no other fitted in."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it; `arguments` is a JSON object in text."""

    name: str
    arguments: str
    id: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One action of the model and what came back."""

    exchange_id: str
    response_id: str = ""
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    observation: str = ""
    """Tool results or the next user turn; empty for the last step."""
    row: int = -1
    """Index into `Trajectory.rows` of the row that holds this step's tokens, -1 without tokens."""
    role: str = ""
    """Who acted, where a session may have several agents: a label and a digest of system prompt and tools, such as
    `planner#1f0c2a9b`; empty from the sandbox and from old records."""
    cut: Cut = ""
    why_not: str = ""
    """Why its tokens are not trained on; empty if they are."""


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """Where one role ended and another went on."""

    source: str
    target: str
    step: int
    """The first step of `target`."""
    via: str = ""
    """The tool that `source` called just before, if it called one."""


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence for the trainer: consecutive exchanges whose prompts extend each other exactly, `n` tokens.

    All arrays have length `n`; off the sampled tokens `step` is -1, `logprobs` 0 and `versions` -1.
    """

    ids: bytes = b""
    """int32"""
    step: bytes = b""
    """int16: which step sampled the token"""
    logprobs: bytes = b""
    """float32: of the behaviour policy, nats"""
    versions: bytes = b""
    """int32: weight version that sampled the token"""
    hint: tuple[int, int] = (0, 0)
    """Half-open span of retrieved experience in the prompt, to be cut out before the gradient."""
    temperature: float = 1.0
    processing: Processing = Processing()
    """What else made the distribution that all of it was sampled from; `logprobs` are of that one."""
    redacted: bool = False
    """Something was taken out, and placeholders stand there: `logprobs` are of another context than `ids`."""
    masked: int = 0
    """Sampled tokens that were taken out; `step` is -1 where their placeholders stand."""


class Trajectory(Message, frozen=True, kw_only=True, tag="trajectory"):
    """An ordered run of steps towards one goal, closed."""

    source: Literal["production", "sandbox", "probe"] = "production"
    tenant: str = "default"
    caller: str = ""
    """Id of the agent key that its first call came with, never the key; empty from the sandbox and from old records."""
    goal: str = ""
    tools: bytes = b""
    """JSON of the tool list in the last request."""
    steps: tuple[Step, ...]
    rows: tuple[TokenRow, ...] = ()
    outcome: float | None = None
    outcome_revision: int = 0
    """How often the outcome has been corrected since it was told first."""
    graded: bool = False
    """The outcome is a grader's opinion: nobody reported it and no execution verified it."""
    provisional: bool = False
    """The outcome is the outcome model's (`actors.provisional`): nobody reported it. In batches alone, never stored."""
    closed_by: Literal["feedback", "idle", "finish", "limit"] = "finish"
    started: float
    """Unix seconds."""
    ended: float
    trainable: bool = True
    why_not: str = ""
    confidence: float = 1.0
    """How sure the stitching is, 0 to 1."""
    continues: str = ""
    """Closed trajectory whose conversation goes on here, if it had closed before this call of it came."""
    resumed_with: str = ""
    """What the user said to go on with it; empty where it begins anew, or goes on with results of tools."""
    task_id: str = ""
    group: str = ""
    """Trajectories of one group attempt the same task under the same desk: GRPO's baseline."""
    origin: Literal["environment", "questioner", "production"] = "environment"
    """Who made its task: the environment, or we of what was explored, or of a failure in production."""
    scale: float = 1.0
    """Factor of its advantages, 0 to 1: less for tasks that were made here (AgentEvolver, arXiv 2511.10395: 0.5)."""
    handoffs: tuple[Handoff, ...] = ()
    """Between roles, by step; none where one role did it all."""
    experience_ids: tuple[str, ...] = ()
    """Lessons that stood in the prompt; empty means unguided."""
    min_version: int = -1
    max_version: int = -1

    @property
    def cut_off(self) -> Cut:
        """What cut its last answer off, where its outcome says no more than that; empty where the outcome is evidence.

        An outcome that somebody reported is, and so is one that an execution verified. A grader who saw half an answer
        graded that half; and an episode that was not over had nothing to verify.
        """
        unverified = self.graded or self.provisional or (self.source != "production" and self.closed_by == "limit")
        return self.steps[-1].cut if self.steps and unverified else ""


class StepLabel(msgspec.Struct, frozen=True):
    """The judge's word on one step; ABSTAIN is masked, never guessed."""

    label: Label
    confidence: float = 1.0
    reason: str = ""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Step-level credit of one trajectory, one label a step."""

    labels: tuple[StepLabel, ...]
    judge: str
    rubric: str
    prompt_hash: str = ""
    tokens: int = 0
    """LLM tokens that the judgement cost."""
    cost: float = 0.0
    """Money that it cost, in the currency of the judge's price list."""
    weight: float = 1.0
    """How far the judge could be trusted when it judged, 0 to 1: scales the process channel."""


class Attributed(Message, frozen=True, kw_only=True, tag="attributed"):
    """A trajectory with its credit; has the trajectory's id."""

    trajectory: Trajectory
    attribution: Attribution
    cluster: str = ""
    """Which goals this is one of: those of a cluster differ in names and numbers alone."""


class OutcomeChanged(Message, frozen=True, kw_only=True, tag="outcome_changed"):
    """The outcome of trajectory `id`, which has closed, is another: the first, or a corrected one. The store has it."""

    revision: int
    """Of the outcome, as in `Trajectory.outcome_revision`."""
