"""What the learner takes of the settings."""

from daemon.settings.pace import PACES
from daemon.settings.reading import address
from daemon.settings.tables import Config
from learner.credit.assign import CreditSettings
from learner.settings import LearnerSettings


def learner(config: Config) -> LearnerSettings:
    train, pace = config.train, PACES[config.profile]
    host, port = address(train.metrics, "train.metrics") if train.metrics else ("127.0.0.1", 0)
    return LearnerSettings(
        warm_start=config.model.path, trainer=train.trainer, sequence_parallel=train.sequence_parallel,
        seed=config.seed, lr=train.lr, beta2=pace.beta2, weight_decay=pace.weight_decay,
        mini_batches=train.mini_batches, micro_tokens=train.micro_tokens,
        gradient_checkpointing=train.gradient_checkpointing, kl_coef=train.kl_coef, kl_limit=train.max_step_kl,
        max_staleness=train.max_staleness, keep_versions=config.keep.versions, metrics_host=host, metrics_port=port,
        tensorboard_dir=train.tensorboard, credit=CreditSettings(alpha=train.step_credit, discount=train.discount),
    )  # fmt: skip
