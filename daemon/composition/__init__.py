"""Composition: settings in, supervised parts out; one builder a subsystem. `service` reads as the loop does.

The only room that knows actors, adapters and settings at once.
"""
