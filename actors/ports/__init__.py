"""Ports: what actors ask of the world, as Protocols; their errors, and the types both sides need.

Adapters implement what is here and import nothing else of the actors' but messages. `engines` and `environments` are
the world, `models` what a model does for us, `store` rows and the policy loop; `errors` is the tree of what can go
wrong outside.
"""
