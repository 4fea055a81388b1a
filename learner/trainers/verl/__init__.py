"""The trainer on verl's FSDP2 engine: many GPUs, in an environment of its own (`make .venv-verl/ready`).

engine.py   the part of verl's interface that we rest on, and nothing else of verl anywhere
shards.py   a mini-batch's rows dealt to ranks and packed as verl takes them
trainer.py  `VerlTrainer`, which every rank runs in step
ranks.py    rank 0 leads, the others follow
files.py    weights and optimizer between ranks and disk
"""
