"""What may be trained on, and why the rest may not.

In: attributed trajectories, versions as the learner makes them and as they serve. Out: to the curator, whose pool this
is. Beside it, for people: what becomes of each agent's runs, and what learning waits for."""
