"""What can go wrong while tasks are made.

QuestionerError
├── WorldLost           an instance broke down; the next one may not
├── BudgetSpent         no steps, instances or seconds are left
├── NotProbeable        the environment cannot be probed at all: its episodes show no state, or none can be opened
├── TaskFileMalformed   a file of tasks cannot be read, or is another's
└── SolverUnavailable   nobody can be asked to solve a task now
"""


class QuestionerError(Exception):
    """Root of this package's errors."""


class WorldLost(QuestionerError):
    """An instance of the environment failed or hung; it counts for nothing."""


class BudgetSpent(QuestionerError):
    """The exploration has used what it was given."""


class NotProbeable(QuestionerError):
    """Probing this environment makes no sense; the message says why."""


class TaskFileMalformed(QuestionerError):
    """A file of tasks that is none, or was made with other options."""


class SolverUnavailable(QuestionerError):
    """Nobody can be asked to solve a task now."""
