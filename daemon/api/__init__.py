"""The control API: HTTP for people and scripts, one file a noun; who may use it, and over what.

In: requests with a key. Out: JSON, `/metrics`, the dashboard, orders to the actors. `scopes` says what opens what.
"""
