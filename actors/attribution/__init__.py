"""What stands between the attributor and its judge: what a judgement may cost, whether it is worth it, and how far its
labels can be trusted.

    trajectory -> cache (`content`) -> worth it? (`sampling`) -> breaker, budget, attempts (`asking`) -> judge
                                        labels against what is known -> `calibration` -> weight     (`books`)

The attributor (`actors.attributor`) puts them together; none of them knows of actors or streams.
"""
