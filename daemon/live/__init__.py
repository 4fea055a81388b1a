"""Live APIs as a service: those of this daemon, from configuration, entry points and orders.

In: settings, orders of run time. Out: registered APIs, watched, for the sandbox and the dashboard.
"""
