"""The experience pool as a service: look, search, add, revise, carry elsewhere, forget.

In: requests of people, agents and programs (control API, MCP, `client`). Out: lessons.
"""
