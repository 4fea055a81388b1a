"""Wordings: say a task that was executed the way that somebody who wants it done would."""
