"""Makes the checkpoint that the demo starts from: tokenizer, model, supervised training, and its measurement.

It runs when a person asks for it (`evolved warmstart`), never in the loop. What it learns from comes as an argument;
`daemon.processes.warmstart` brings it together with the travel desk's demonstrations.
"""
