"""The weather: production simulated with the real actors on virtual time.

In: a cell of the plan and a seed. Out: what was learned, what became of each report, and whether a promise was broken.
`world` puts a cell together, `traffic` makes its runs, `bus` hands records on and breaks things, `invariants` watches.
"""
