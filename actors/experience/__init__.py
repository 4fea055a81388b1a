"""The experience pool: what becomes of lessons between being drawn and being given up.

In: attributed trajectories, swaps, drift. Out: lessons, and the lessons that fit a goal (`navigator`).
`experiencer` is the actor; here is what it decides with: who stands behind a lesson (`origins`), which trajectories are
compared (`window`), the lessons with their bound (`pool`), what else than contrast yields them (`skills`,
`tool_memory`), whether the weights have learnt one (`reviewing`), what was found out after a drift (`inquiry`,
`probing`), and how they are forgotten (`forgetting`).
"""
