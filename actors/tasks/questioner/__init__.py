"""The questioner: finds out what an environment is by trying, and sets tasks whose reference was really executed.

    probe -> model of the environment -> traces -> shortest references -> programs -> drafts -> filters -> tasks

`exploring` walks through fresh instances and learns names, values, results, preconditions; `shrinking` cuts what led to
a change down to what was needed; a `Program` is such a reference with its data flow, to be executed again in other
worlds; `phrases` says it in words, in the environment's own where a program is known to solve its goals; `filters` drop
and count. `generating` turns the crank, round by round, from a state that is one JSON document. Nothing here knows an
environment by name, and no step believes what it can execute.
"""
