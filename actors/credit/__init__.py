"""Credit: a label for every step of a closed trajectory, and how far the judge that gave it can be trusted.

    trajectory -> cache -> worth it? -> budget, attempts (`asking`) -> judge
                  labels against what is known -> `calibration` -> weight     (`judge_stats`)

In: closed trajectories, feedback on them. Out: attributed trajectories. `attributor` is the actor and puts the rest
together; none of it knows of actors or streams.
"""
