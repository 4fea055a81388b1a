"""Why a run teaches nothing, in words, and what to change: one table, and one sentence per agent.

An unknown reason is shown as it is: a word that nobody has explained yet is better than none.
"""

from collections.abc import Mapping

import msgspec

from actors.store.agents import UNREPORTED, AgentView

FEEDBACK = "report how runs went: POST /v1/feedback (docs/attach.md)"
_TOKENS = "serve through the tap with tap.capture_tokens = true, from a vLLM that returns token ids (docs/attach.md)"
_PLUGIN = "install evolved's plug-in in the environment of the engine, and restart it (docs/attach.md, step 1)"
_ROUTE = "let the agent call /v1/chat/completions or /v1/responses (docs/attach.md)"
_SAMPLING = "sample at temperature 1 and top_p 1, or set engines.logprobs (docs/attach.md, step 2)"
_GREEDY = "let the agent sample at temperature 1: the best guess alone has nothing to be compared with"
_FORCED = "leave the choice to the model in these calls: what is forced was not sampled from the weights"
_LABELLED = "serve from an engine in [engines], which is labelled with its version (docs/attach.md)"
_TELLS = "report outcomes that differ: a score between 0 and 1 tells more than a success that always comes"
_LEARNER = "look into the learner's log: it names the trajectory and the field"
_DOWN = "see that the learner runs: systemctl status evolved-learner"
_REDACTED = "send less of such data to the model, or take its pattern out of [redact] (docs/security.md, Redaction)"
_SOONER = "report outcomes sooner, or raise train.max_staleness (docs/how-it-learns.md)"
_RENDER = "start vLLM with --enable-scale-out, which opens /v1/chat/completions/render (docs/attach.md, step 2)"
_LONGER = "raise sandbox.max_tokens or the engine's context length"
_FIRST = "nothing: the first runs of an agent make its mean; more reported runs end it"
_VERSIONS = "see that engines serve versions of this learner alone"
_NATIVE = "train with train.trainer = native, or sample at temperature and top_p 1 alone (docs/several-machines.md)"
_BOUND = "nothing, if few are: train.max_step_kl bounds an update; else lower train.lr"
_PENALTIES = ("repetition", "presence", "frequency")
NO_FAULT = ("held out", "no outcome")
"""Reasons that say nothing against a run."""
_FEW = 10
"""One call in so many that cannot be trained on is no news: agents time out and engines fail now and then."""

_REMEDIES: dict[str, tuple[str, str]] = {
    # of the pool
    UNREPORTED: (UNREPORTED, FEEDBACK),
    "no outcome": ("had no outcome in time", FEEDBACK),
    "outcome not finite": ("have an outcome that is not a number", "report outcomes between 0 and 1"),
    "untrainable": ("may not be trained on", _TOKENS),
    "unknown version": ("came from weights that the engine did not name", _LABELLED),
    "held out": ("are kept for the gate's exam", "nothing: a fourth judges what the rest makes"),
    "pool full": ("made room for newer ones", "let the learner update more often"),
    "stale": ("were too old for the weights that are trained", _SOONER),
    "abandoned": ("came from weights that were given up", "nothing: the versions that they came from are gone"),
    "equal outcomes": ("went as well as all that they were compared with", _TELLS),
    "group too small": ("had too few other attempts at their task", "look at the rollout: evolved status"),
    "no group": ("belong to no group", "nothing: only groups of the sandbox are trained on"),
    "given up": ("were in an order that the learner did not answer", _DOWN),
    # of the trajectory
    "no token ids": ("came without token ids", _TOKENS),
    "no token ids from /v1/messages": ("called /v1/messages, and their engine gave no token ids there", _PLUGIN),
    "no token ids from /v1/responses": ("called /v1/responses, and their engine gave no token ids there", _TOKENS),
    "no log-probs from /v1/responses": ("called /v1/responses, and their engine gave no log-probs there", _PLUGIN),
    "several rounds in one call of /v1/responses": ("had tools called by the server itself", _ROUTE),
    "token fields of an unknown form": ("came with token fields that cannot be read", _TOKENS),
    "mirrored": ("were mirrored, without tokens", "send the agent's calls through the tap (docs/attach.md)"),
    "imported": ("were imported, without tokens", "send the agent's calls through the tap (docs/attach.md)"),
    "incomplete": ("had a call that was cut off", "look for timeouts and broken connections of the agent"),
    "unreadable": ("had an answer that was an error or not readable", "look at the engine's log"),
    "no response": ("had a call without an answer", "look at the engine's log"),
    "several choices": ("asked for several answers to a call (n > 1)", "ask for one answer a call"),
    "temperature 0": ("were sampled at temperature 0", _GREEDY),
    "temperature": ("were sampled at another temperature than 1", _SAMPLING),
    "top_p": ("were sampled with top_p below 1", _SAMPLING),
    "top_k": ("were sampled with top_k", _SAMPLING),
    "min_p": ("were sampled with min_p", _SAMPLING),
    **{f"{kind}_penalty": (f"were sampled with a {kind} penalty", _SAMPLING) for kind in _PENALTIES},
    "logit_bias": ("were sampled with a logit_bias", _FORCED),
    "unknown sampling defaults": ("came from an engine that does not say how it samples", _RENDER),
    "no weight versions": ("came from weights that the engine did not name", _LABELLED),
    "the lesson moved between turns": ("had a lesson that moved between calls", "nothing: it is rare"),
    # of the learner
    "outcome range": ("have an outcome beyond any scale", "report outcomes between 0 and 1"),
    "cut off": ("had their last answer cut off, and an outcome that nobody reported or verified", _LONGER),
    "not trainable": ("may not be trained on", _TOKENS),
    "zero advantage": ("went as was expected of them", _TELLS),
    "nothing to compare": ("had nothing to be compared with", _FIRST),
    "future version": ("came from weights that the learner does not know", _VERSIONS),
    "processing": ("were sampled in a way that the trainer cannot do to its own logits", _NATIVE),
    "grammar": ("had a grammar and something redacted", "nothing: nobody can tell what the grammar chose"),
    "too long": ("are longer than the learner takes", "shorten the agent's prompts (docs/sandbox.md)"),
    "no step": ("were in an update that was undone: it moved too far", "lower train.lr (docs/operate.md)"),
    "update limit": ("were left out, for their update had moved as far as it may", _BOUND),
    "nonfinite gradient": ("had a gradient that is not finite", _LEARNER),
    "failed": ("were in an update that failed", _LEARNER),
    "skipped": ("were in an order that the learner skipped", _LEARNER),
}
"""By reason: what it means, of runs; what to change."""


class Told(msgspec.Struct, frozen=True):
    """What is said of one agent, or of its calls."""

    sentence: str
    remedy: str = ""
    """What to change; empty if nothing."""


def remedy(reason: str) -> str:
    """What to change if runs teach nothing for `reason`; empty if that is not known."""
    return _explained(reason)[1]


def _explained(reason: str) -> tuple[str, str]:
    if reason.startswith("redacted"):
        return f"held {reason.removeprefix('redacted').strip() or 'something'} that was redacted", _REDACTED
    if reason.startswith("no token ids"):
        # From which route, or in spans: where there is more to say, the table says it.
        return _REMEDIES.get(reason, _REMEDIES["no token ids"])
    # The learner's reasons are words with underscores, and so are the names of sampling parameters.
    return _REMEDIES.get(reason) or _REMEDIES.get(reason.replace("_", " "), (reason, ""))


def counted(reasons: Mapping[str, int], most: int = 3) -> str:
    """The commonest reasons with their numbers: "12 were sampled at temperature 0, 3 ..."."""
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    said = [f"{number} {_explained(reason)[0]}" for reason, number in ranked[:most]]
    rest = sum(number for _, number in ranked[most:])
    return "; ".join([*said, f"{rest} for other reasons"] if rest else said)


def commonest(reasons: Mapping[str, int]) -> str:
    """The reason of most runs, but for what needs no remedy if there is another."""
    ranked = sorted(reasons, key=lambda reason: (remedy(reason).startswith("nothing"), -reasons[reason], reason))
    return ranked[0] if ranked else ""


def calls_that_train(agent: AgentView) -> Told:
    """What share of its calls can be trained on, the first reason why not, and what to change, if it is about many."""
    unfit = sum(agent.unfit.values())
    if not unfit:
        return Told(f"all {agent.calls}" if agent.calls else "none yet")
    why = commonest(agent.unfit)
    # Reasons are words about runs.
    share = 100 * (agent.calls - unfit) // agent.calls
    sentence = f"{share} % of {agent.calls}; {agent.unfit[why]} are of runs that {_explained(why)[0]}"
    return Told(sentence, remedy(why) if unfit * _FEW > agent.calls else "")


def tell(agent: AgentView) -> Told:
    """Is there learning from this agent; if not, why; what to change."""
    missed = sum(agent.no_gradient.values())
    answered = agent.learned + missed
    if not answered:
        return Told(f"Not learning yet: of {_runs(agent.runs)} {counted(agent.came)}.", remedy(commonest(agent.came)))
    # Group and batch means leave some without a gradient even where all is well; three in four are a sign.
    well = agent.learned * 4 >= answered
    head = "Learning" if well else "Hardly learning" if agent.learned else "Not learning"
    text = f"{head}: {agent.learned} of {_runs(answered)} ordered changed the weights"
    text += f"; {missed} gave no gradient: {counted(agent.no_gradient)}." if missed else "."
    return Told(text, "" if well else remedy(commonest(agent.no_gradient)))


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"
