"""Environments over HTTP: `service` serves any `Environment`, `client` is an `Environment` over such a server.

The routes and the shapes of requests and answers are those of AgentEvolver's environment service
(modelscope/AgentEvolver, env_service/env_service.py and env_client.py), so that its clients can play our environments
and ours can play its; what it has no word for (`sample`, `get_tools`, `get_state`) are routes of our own.
"""
