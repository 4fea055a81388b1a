"""What can go wrong in the learner.

LearnerError
├── OrderUnusable           the file of an order is not what the order says, or cannot be read as a batch
│   └── OrderFileMissing    it is not there (yet): worth another look
├── BatchRefused            a batch whose gradient would be mostly noise: skipped and counted, weights unchanged
├── BatchFileInvalid        a packed batch that is truncated, of another schema or inconsistent
├── CheckpointInvalid       a version directory or the learner's own state that fails its checks
├── CheckpointUnsupported   a model whose files the trainer could not write back under the same names and shapes
├── NonFiniteWeights        weights that must not be written
├── TrainerUnavailable      the trainer that the settings name cannot run in this environment
├── MemoryTooSmall          what an update takes is more than the machine, or the GPU, has
├── ShapeUnknown            a model whose size cannot be counted beforehand
├── RankFailed              a trainer of several processes failed in one of the others
├── MetricsUnavailable      metrics are asked for and no port is free, or the address is not this machine's
├── TensorBoardUnavailable  curves are asked for and cannot be written
└── StateEmpty              no version on disk and no warm start to begin from
"""


class LearnerError(Exception):
    """Root of this package's errors."""


class OrderUnusable(LearnerError):
    """Another attempt cannot help: size or digest differ from the order's, or the content is no batch."""


class OrderFileMissing(OrderUnusable):
    """The file cannot be opened; on a shared file system it may appear a moment later."""


class BatchRefused(LearnerError):
    """A sound batch that the trainer will not learn from; raised before any weight has changed.

    The text is the reason, for people; `reason` is its short name, which drops are counted under.
    """

    def __init__(self, text: str, *, reason: str = "refused") -> None:
        super().__init__(text)
        self.reason = reason


class BatchFileInvalid(LearnerError):
    """A packed batch file that must not be trained on; the text names the field."""


class CheckpointInvalid(LearnerError):
    """A directory that is incomplete, altered, or signed with another key."""


class CheckpointUnsupported(LearnerError):
    """The model's parameter names differ from its file's, so an engine could not load what would be written."""


class NonFiniteWeights(LearnerError):
    """A parameter is NaN or infinite; the last written version is still good."""


class TrainerUnavailable(LearnerError):
    """A package or a GPU is missing; the text says what to do."""


class MemoryTooSmall(LearnerError):
    """Raised before anything is loaded; the text has the figures and the remedies."""


class ShapeUnknown(LearnerError):
    """No config.json that can be read, or one of another kind of model than the formulas are for."""


class RankFailed(LearnerError):
    """Rank 0's own part was done; the other rank's log has its error in full."""


class MetricsUnavailable(LearnerError):
    """Nothing can listen where the settings say; the text names them."""


class TensorBoardUnavailable(LearnerError):
    """The package is missing, or the directory cannot be written to."""


class StateEmpty(LearnerError):
    """There is nothing to train: name a warm start."""
