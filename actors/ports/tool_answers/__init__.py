"""How a tool call went, read from its answer alone: ok, failed or unknown. `reader` is the way in."""
