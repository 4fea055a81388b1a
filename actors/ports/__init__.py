"""Ports: what actors ask of the world and of the store, as Protocols; their errors, and the types both sides need.

Adapters implement what is here and import nothing else of the actors' but messages. `store` is what
`actors.store.Store` does for each actor; `errors` is the tree of what can go wrong outside.
"""
