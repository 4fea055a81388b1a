"""Statistics: intervals, posteriors, tests that may be looked at again and again. Pure; imported from everywhere."""
