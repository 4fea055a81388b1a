"""What can go wrong outside.

AdapterError
├── EngineError
│   ├── EngineUnavailable    no answer, or not yet: try again later
│   ├── EngineRejected       the engine understood and said no
│   ├── CheckpointRefused    a version directory that must not be loaded
│   ├── WeightsUnavailable   a version is not where the engine could read it yet
│   │   └── WeightsDiskFull  there is no room for it
│   ├── SwapFailed           the pause-to-resume section did not end well
│   └── EngineNotStarted     `evolved engine` could not bring one up
├── EnvironmentFailed        an environment broke down (an agent's wrong call is an observation, not an error)
├── LiveApiError             something about a live API
│   ├── LiveApiUnavailable   no answer, or its breaker is open: try again later
│   ├── LiveApiMalformed     a document or an answer that cannot be used
│   └── LiveApiRefused       a call that this project will not make: not allowed, or unsafe
│       └── LiveToolUnknown  there is no such tool
├── JudgeUnavailable         the judge cannot be reached for now
├── EndpointUnavailable      a chat endpoint cannot be reached for now
├── AdapterNotSetUp          a setting of an adapter is wrong, or its key is not there
├── ExtractorUnavailable     the extractor does not answer, or its budget is spent
├── RewriterFailed           a lesson is given as it is
├── WordingFailed            a task keeps its template's words
├── EmbedderUnavailable
└── VectorsRefused           an embedder's answer that must not get into an index
    └── WrongDimension       another model answers
"""


class AdapterError(Exception):
    """Root of this package's errors."""


class EngineError(AdapterError):
    """Something about an engine."""


class EngineUnavailable(EngineError):
    """The engine did not answer in time or refused the connection."""


class EngineRejected(EngineError):
    """The engine answered with an error of its own."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class CheckpointRefused(EngineError):
    """Wrong names, shapes or types, missing tensors, numbers that are not finite, or a digest that does not match."""


class WeightsUnavailable(EngineError):
    """The version is on its way, or its source does not answer: ask again, what is here is kept."""


class WeightsDiskFull(WeightsUnavailable):
    """The version does not fit; what was half here is gone, what serves is untouched."""


class SwapFailed(EngineError):
    """A swap was not completed; the engine was resumed with what it had."""


class EngineNotStarted(EngineError):
    """A setting of the engine's start is wrong, or it ended before it was ready."""


class EnvironmentFailed(AdapterError):
    """The environment itself failed."""


class LiveApiError(AdapterError):
    """Something about a live API."""


class LiveApiUnavailable(LiveApiError):
    """The live API did not answer in time, or has failed too often of late.

    Attributes:
        retry_after: seconds after which asking again is worth it, 0 if nobody said.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LiveApiMalformed(LiveApiError):
    """A description or an answer of a live API that is not what its standard says."""


class LiveApiRefused(LiveApiError):
    """A call that is not made: no such tool, not on the operator's list, or to an address that is off limits."""


class LiveToolUnknown(LiveApiRefused):
    """A call of a tool that there is not."""


class EndpointUnavailable(AdapterError):
    """A chat endpoint did not answer within deadline and attempts, or will not until a setting is changed."""


class JudgeUnavailable(AdapterError):
    """The judge did not answer; the actor waits. A garbage answer is no such thing: its steps abstain."""


class AdapterNotSetUp(AdapterError):
    """An option of an adapter cannot be used, or the key that it names is not there."""


class ExtractorUnavailable(AdapterError):
    """The extractor did not answer, or its budget is spent; no lesson is drawn until it does."""


class RewriterFailed(AdapterError):
    """A lesson was not rewritten: no answer in time, or one that cannot be used."""


class WordingFailed(AdapterError):
    """A task was not worded.

    Attributes:
        reason: a stable short word to count by; `unavailable` where asking again later may help.
    """

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(f"{reason}: {text}" if text else reason)
        self.reason = reason


class EmbedderUnavailable(AdapterError):
    """The embedder did not answer."""


class VectorsRefused(AdapterError):
    """An embedder's answer is no good; asking again may help, using it would not."""


class WrongDimension(VectorsRefused):
    """Vectors of another length than before."""
