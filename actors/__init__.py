"""The actors, a room for each thing that they do; docs/architecture.md has the rooms from the bottom up."""
