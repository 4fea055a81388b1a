"""Engines: servers that hold the weights; the port is `actors.ports.engines`.

In: prompts, and version directories to load. Out: completions with exact ids. `vllm` is for production, `embedded` a
small engine for the demo and the tests; `swap` is the program that puts other weights in, `checkpoint` looks first.
"""
