"""Search by words: what finds a lesson for a goal (actors) and a tool for a request (adapters).

text -> `words` (names in parts, endings off), `letters` (four at a time) -> `TermIndex` (BM25) -> `TextIndex`
"""
