"""Embedders: texts to vectors; the port is `actors.ports.embedders`.

In: texts of lessons and goals. Out: vectors, checked (`actors.ports.vectors`). `hashing` needs no model, `openai` asks
any endpoint that speaks `POST /v1/embeddings`.
"""
