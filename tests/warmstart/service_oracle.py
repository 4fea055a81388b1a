"""The answer key: which turns bring a desk forward."""

from adapters.environments.service_desk.desk import Case, Desk, Turn

PREPARES = {"refund": "check_policy", "cancel": "orders.hold", "reset": "verifyUser", "close": "verifyUser"}
"""What must go before, by wish."""
DOES = {
    "refund": "create_refund", "label": "send_label", "cancel": "orders.cancel", "track": "orders.track",
    "move": "orders.move", "reset": "resetPassword", "unlock": "unlockUser", "close": "closeAccount",
}  # fmt: skip
LOOKS = {
    "refund": "lookup_order", "track": "orders.lookup", "reset": "findUser", "unlock": "findUser", "close": "findUser",
}  # fmt: skip


def good_turns(desk: Desk) -> list[Turn]:
    """All turns that make progress now, the usual one first; never empty while the desk is not done."""
    unknown = next((case for case in desk.open if not case.told), None)
    if unknown is not None:
        return [Turn(text=f"Which {unknown.needs}?")]
    steps = [(role, arguments) for case in desk.open if (step := next_call(case)) for role, arguments in [step]]
    if not steps:
        places = [case.place for case in desk.open]
        return [Turn(text=f"It is in {' and '.join(places)}." if places else "Done.")]
    calls = [(desk.drift.name(role), arguments) for role, arguments in steps]
    alone = [Turn(calls=(call,)) for call in calls]
    return [*alone, Turn(calls=tuple(calls))] if len(calls) > 1 else alone


def next_call(case: Case) -> tuple[str, dict[str, str]] | None:
    """Role and arguments of the next call for a case whose details are known; None if words are what is left."""
    whose = {"user": case.user} if case.needs == "email" else {"order": case.id}
    if case.wish in LOOKS and not case.found:
        return LOOKS[case.wish], {case.needs: case.id}
    if case.wish in PREPARES and not case.prepared:
        return PREPARES[case.wish], whose
    if case.wish == "track":
        return None if case.tracked else ("orders.track", {"parcel": case.parcel})
    extra = {"refund": {"amount": case.amount}, "move": {"city": case.city}}.get(case.wish, {})
    return DOES[case.wish], {**whose, **extra}
