"""Tasks of the sandbox beside the environment's own: where they come from, and which are played.

questioner, failures of production -> the store's pool -> mixture -> rollout
"""
