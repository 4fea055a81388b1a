"""Deployment: what serves is brought to what should serve, one engine after the other.

In: verdicts, directives, versions served. Out: versions served, how a canary ended, routes for the tap.
`swapper` is the actor, `deployment_log` its records, `canary` the trial of a version that has just been promoted.
"""
