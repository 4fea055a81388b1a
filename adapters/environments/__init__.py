"""Environments: places where tasks can be attempted and verified; the port is `actors.ports.environments`.

In: a task, then calls. Out: observations, and whether it was done. `travel`, `appworld`, `bfcl` and `gymnasium` are
worlds, `http` and `workers` play them elsewhere, `synthetic_tasks` wraps any of them for tasks that were made here.
"""
