"""Judges: who says, step by step, what helped and what did not."""
