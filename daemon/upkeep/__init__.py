"""Upkeep: install, backup, restore, retention, provenance, and what a swap needs around it on this machine."""
