"""Engines: servers that hold the weights, behind one Protocol."""
