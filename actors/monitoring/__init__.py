"""Monitoring: production watched by what serves, and acted on.

In: trajectories, calls, versions served, judgements. Out: directives. `sentinel` is the actor, `history` what monitors
look back on; `versions`, `agent_outcomes`, `first_version`, `tools`, `blocks` and `engine` each answer one question.
docs/promotion.md has the reasons and the error rates.
"""
