"""The answer key: which actions bring a desk forward."""

from adapters.environments.travel.desk import Desk, Ticket

Action = tuple[str, dict[str, str]]


def good_actions(desk: Desk) -> list[Action]:
    """All calls that make progress now, the usual one first; never empty while the desk is not done."""
    ticket = desk.ticket
    if ticket is None:
        queue_is_empty = desk.current >= len(desk.tickets)
        return [("finish", {"answer": "done"}) if queue_is_empty else ("next_ticket", {})]
    return [(desk.variant.names[role], arguments) for role, arguments in _by_role(desk, ticket)]


def _by_role(desk: Desk, ticket: Ticket) -> list[Action]:
    if ticket.kind == "D":
        return [("finish", {"answer": ticket.flight})] if ticket.flight_found else [_search(ticket)]
    to_book = ticket.wants_booking and not ticket.booked
    to_cancel = ticket.wants_cancelling and not ticket.cancelled
    if not to_book and not to_cancel:
        answer = ticket.reference if ticket.wants_booking else "done"
        return [("next_ticket", {}) if desk.queue else ("finish", {"answer": answer})]
    actions: list[Action] = []
    if not ticket.person_known:
        actions.append(("find_person", {"name": ticket.name}))
    if to_cancel and ticket.order_listed:
        actions.append(("cancel" if ticket.checked else "check_policy", {"oid": ticket.order}))
    elif to_cancel and ticket.person_known:
        actions.append(("list_orders", {"pid": ticket.person}))
    if to_book and not ticket.flight_found:
        actions.append(_search(ticket))
    elif to_book and desk.variant.book_needs_quote and not ticket.quoted:
        actions.append(("quote", {"fid": ticket.flight}))
    elif to_book and ticket.person_known:
        actions.append(("book", {"fid": ticket.flight, "pid": ticket.person}))
    return actions


def _search(ticket: Ticket) -> Action:
    return ("search_flight", {"to": ticket.city})
