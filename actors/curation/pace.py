"""Times in the words of people. Pure."""

from datetime import UTC, datetime

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def clock(at: float, now: float) -> str:
    """A time as people say it, in UTC: "09:10 UTC", "Tuesday 09:10 UTC", "2026-01-31 09:10 UTC"."""
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    days = abs((then.date() - today.date()).days)
    # Not by strftime: its names of days are those of the machine's language.
    day = "" if not days else f"{_DAYS[then.weekday()]} " if days < 7 else f"{then:%Y-%m-%d} "
    return f"{day}{then:%H:%M} UTC"


def duration(seconds: float) -> str:
    """Such as "40 s", "12 min", "3.5 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
