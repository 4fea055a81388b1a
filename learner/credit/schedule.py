"""The weight of the process channel over a training run: strong while the outcome tells little, weaker later.

Sources: AgentEvolver's code (cosine decay; `prm_steps`, after which step credit ends). Its paper (arXiv 2511.10395,
section 7.5.3) sees a policy overfit to the judge at a high alpha.
"""

from math import cos, pi

from learner.credit.settings import CreditSettings


def alpha_at(settings: CreditSettings, update: int) -> float:
    """alpha of one update.

    constant: alpha. stop: alpha while `update < alpha_updates`, then 0. cosine, with p = min(1, update /
    alpha_updates): alpha_min + (alpha - alpha_min) (1 + cos(pi p)) / 2.

    Args:
        settings: alpha and its schedule.
        update: updates that were made before this one; below 0 counts as 0.
    """
    if settings.alpha_schedule == "constant":
        return settings.alpha
    if settings.alpha_schedule == "stop":
        return settings.alpha if update < settings.alpha_updates else 0.0
    progress = min(1.0, max(0, update) / settings.alpha_updates)
    return settings.alpha_min + (settings.alpha - settings.alpha_min) * (1 + cos(pi * progress)) / 2
