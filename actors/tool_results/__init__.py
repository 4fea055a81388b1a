"""Tool results: which tools a run called, whether the calls were valid, and how they went. Pure.

In: trajectories. Out: calls with their results, and a run in brief with the figures that monitors compare.
"""
