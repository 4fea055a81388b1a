"""Plays one sandbox episode against an engine, with exact token ids: the shared hand of rollout, gate and demo.

Each turn is one request, which brings back the prompt's ids as the engine rendered it, the sampled ids with log-probs
and versions, and the tool calls as the engine's own parser reads them. A turn extends the row if its prompt begins with
exactly the row's ids; where the engine renders a past turn otherwise, a new row begins. Nothing is ever re-tokenized.
What stands in a prompt is a context template's affair, and a user's own loop may play; both go through a `Session`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from actors.messages import Step, Task, TokenRow
from actors.ports.engines import Engine
from actors.ports.environments import Environment, Episode, Graded
from actors.rollout.context import CAUSAL, ContextTemplate, Message, Past, with_system
from actors.rollout.context.budget import fit
from actors.rollout.errors import Ending, EpisodeLost, RequestRefused
from actors.rollout.harness.agents import Agent, run_agent
from actors.rollout.harness.completion import answered, said
from actors.rollout.harness.rows import hint_span
from actors.rollout.harness.session import Sampling, Session, within

__all__ = ["EpisodeLost", "Played", "begin", "hint_span", "opening_ids", "play"]


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was played to its end or to its limit."""

    steps: tuple[Step, ...]
    rows: tuple[TokenRow, ...]
    outcome: float
    """As the environment verified it, 0.0 to 1.0."""
    ending: Ending
    """Why there was no further turn."""
    tools: list[dict[str, Any]]
    """Of the last request."""
    min_version: int
    """Oldest weight version that sampled a token, -1 if unknown."""
    max_version: int
    graded: bool = False
    """The outcome is a grader's opinion."""
    why_not: str = ""
    """Why the rows must not be trained on; empty if they may."""

    @property
    def finished(self) -> bool:
        """The environment ended it; else it ran into a limit."""
        return self.ending == "finished"


async def begin(environment: Environment, task: Task, timeout: float) -> Episode:
    """A fresh attempt at `task`, within `timeout` seconds.

    Raises:
        EpisodeLost: the environment broke down.
    """
    return await within(timeout, environment.reset(task))


async def opening_ids(
    engine: Engine, episode: Episode, *, timeout: float, context: ContextTemplate = CAUSAL, system: str = ""
) -> list[int]:
    """Prompt ids of the episode's first turn without any lesson, `context` and `system` as for `play`.

    Raises:
        EpisodeLost: the engine broke down.
    """
    return await within(timeout, engine.render(_opening(episode, context, system), context.tools(episode.tools)))


async def play(
    engine: Engine,
    episode: Episode,
    *,
    context: ContextTemplate = CAUSAL,
    agent: Agent | None = None,
    lessons_text: str = "",
    system: str = "",
    plain_opening: Sequence[int] = (),
    max_steps: int = 24,
    max_tokens: int = 512,
    temperature: float = 1.0,
    seed: int = 0,
    timeout: float = 60.0,
    version: Callable[[], int] = lambda: -1,
) -> Played:
    """Play `episode`, fresh from `reset`, with whatever weights `engine` has.

    Args:
        context: what of the history stands in each request; a loop of one's own gets its budget only.
        agent: plays in place of our own loop.
        lessons_text: appended to the opening's system text; its span in the rows is recorded.
        system: the system text that the chat template supplies where the episode's messages have none.
        plain_opening: `opening_ids` of this task if the caller has them, to save a request.
        version: what the engine had all the while, asked where it gives no spans; -1 if that is not known.

    Raises:
        EpisodeLost: engine, environment or agent broke down, or the opening does not do.
    """
    session = Session(
        engine,
        episode,
        Sampling(
            max_steps=max_steps, max_tokens=max_tokens, temperature=temperature, seed=seed, timeout=timeout,
            budget=context.budget,
        ),
        opening=_opening(episode, context, system) if agent is None else list(episode.messages),
        lessons=lessons_text,
        system=system,
        plain=plain_opening,
    )  # fmt: skip
    if agent is not None:
        await run_agent(agent, session)
    else:
        await _converse(session, context)
    outcome = await within(timeout, episode.evaluate())
    rows = session.rows
    if rows.unversioned and (known := version()) >= 0:
        rows.assume(known)
    packed, why_not = rows.pack(session.why_not)
    return Played(
        steps=session.steps,
        rows=packed,
        outcome=outcome,
        ending=session.ending or "left",
        tools=session.last_tools,
        min_version=rows.min_version,
        max_version=rows.max_version,
        graded=isinstance(episode, Graded) and episode.graded,
        why_not=why_not,
    )


async def _converse(session: Session, context: ContextTemplate) -> None:
    """Our own loop: a request, its calls to the environment, and what comes back into the history."""
    history = session.history()
    while session.ending is None:
        if session.spent:
            session.end("steps")
            return
        tools = context.tools(session.tools)
        try:
            messages = context.messages(history)
            if context.budget:
                messages = await fit(context, history, tools, session.counts, session.sent)
            if messages is None:
                if not history.past:
                    raise EpisodeLost("opening_over_budget", f"a budget of {context.budget} tokens; raise it")
                session.end("budget")
                return
            turn, _ = await session.ask(messages, tools)
        except RequestRefused:
            if not history.past:
                raise
            session.end("context")
            return
        history.used = len(turn.prompt)
        own = context.take(history, turn.calls)
        rest = tuple(call for at, call in enumerate(turn.calls) if at not in own)
        back: tuple[Message, ...] = tuple(
            {"role": "tool", "content": text, "tool_call_id": turn.calls[at].id} for at, text in own.items()
        )
        for text in own.values():
            session.note(text)
        if rest or not own:
            back += answered(rest, await session.step(rest, turn.text))
        past = Past(history.next_number(), said(turn), back)
        history.add(context.record(history, past))


def _opening(episode: Episode, context: ContextTemplate, system: str) -> list[Message]:
    messages, text = list(episode.messages), context.instructions
    return with_system(messages, system, text) if text else messages
