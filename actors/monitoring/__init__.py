"""Monitoring: production watched by what serves, and acted on: rollback, freeze, thaw, a word to people.

In: trajectories, calls, versions served, judgements. Out: directives. `sentinel` is the actor; a monitor answers one
question, behind the port `Monitor`:

| module | asks |
|---|---|
| `versions` | does what serves do worse, please the judge alone, or behave otherwise than before the swap? |
| `tools` | have the tools changed under the agents? |
| `blocks` | do users ask for something else; does the judge say something else? |
| `engine` | does serving fail or slow down; does an engine stand still? |

`history` is what they look back on, `actors.statistics.change_tests` how they decide. docs/promotion.md has the reasons
and the error rates.
"""
