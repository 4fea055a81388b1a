"""Finding lessons: the memory's index.

    lessons  ->  `Library` (a `Pool` a tenant: vectors, words, intents)  ->  found  ->  ranked  ->  given
    texts    ->  `Embeddings` (the embedder behind checks and the store's cache)
    versions ->  `Snapshots` (which revisions there were when a weight version came)

Everything here is asked by the navigator (`actors.experience.navigator`); nothing here knows streams.
"""
