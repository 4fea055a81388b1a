"""Embedders: texts to vectors; the port is `actors.ports.models`.

In: texts of lessons and goals. Out: vectors, checked (`actors.ports.models`). `hashing` needs no model, `openai` asks
any endpoint that speaks `POST /v1/embeddings`.
"""
