"""Embedders: texts to vectors, so that the navigator finds lessons by what they are about."""
