"""The experience pool: what becomes of lessons between being drawn and being given up.

`actors.experiencer` is the actor; here is what it decides with: who stands behind a lesson (`origins`), which
trajectories are compared (`window`), the lessons themselves with their bound (`pool`), what else than contrast yields
them (`skills`, `tool_memory`, `extraction`), whether the weights have learnt one (`closed_book`), what was found out
after a drift (`inquiry`), and how they are forgotten (`forgetting`).
"""
