"""What can go wrong outside: the tree of errors that adapters raise and actors tell apart."""


class AdapterError(Exception):
    """Root of them all."""


class EngineError(AdapterError):
    """Something about an engine."""


class EngineUnavailable(EngineError):
    """The engine did not answer in time or refused the connection: try again later."""


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
    """The environment itself failed; an agent's wrong call is an observation, no error."""


class LiveApiError(AdapterError):
    """Something about a live API."""


class LiveApiUnavailable(LiveApiError):
    """The live API did not answer in time, or has failed too often of late; asking again is worth it after
    `retry_after` seconds, 0 if nobody said."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LiveApiMalformed(LiveApiError):
    """A description or an answer of a live API that is not what its standard says."""


class LiveApiRefused(LiveApiError):
    """A call that is not made: no such tool, not on the operator's list, or to an address that is off limits."""


class LiveToolUnknown(LiveApiRefused):
    """A call of a tool that there is not."""


class AdapterNotSetUp(AdapterError):
    """An option of an adapter cannot be used, or the key that it names is not there."""


class ModelError(AdapterError):
    """Something about a model that judges, words, embeds or draws lessons for us."""


class ModelUnavailable(ModelError):
    """It did not answer within deadline and attempts, has no budget left, or will not until a setting is changed."""


class AnswerRefused(ModelError):
    """Its answer cannot be used, as `reason` says in a word; asking again may help."""

    def __init__(self, message: str, reason: str = "refused") -> None:
        super().__init__(message)
        self.reason = reason


class WrongDimension(AnswerRefused):
    """Vectors of another length than before."""
