"""Do the tests protect what they are for? Small changes to the product, and which of them its tests find.

    python -m tests.mutants --seed 0 --count 100                       # draw 100 mutants, try each: build/mutants.jsonl
    python -m tests.mutants --again docs/results/mutants.jsonl         # the same ones on this commit, and what changed

A mutant is one changed operator, constant or branch, or one dropped call, inside a function of the rooms that keep our
promises (`places.ROOMS`). Each is tried in a clone with an environment of its own, so nothing is changed here and
uncommitted work is not measured. The tests of its room run until one fails; with --weather, what they miss is played
in one cell of the simulation. Results are JSON lines: a run that was stopped goes on where it was.
"""
