"""Whether a tool call failed, read from its answer alone. `reader` is the way in."""
