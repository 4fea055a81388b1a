"""What agents are asked: templates, free words, or what others wrote.

Free words are thousands of distinct sentences that no template of ours would make two of: subjects, ways to ask,
reasons and asides are drawn apart, so that two requests for one thing share few words, as people's do. The requests of
BFCL are two hundred that none of us wrote (`bfcl/NOTICE`).
"""

import random
from functools import cache
from pathlib import Path

import msgspec

_TEMPLATES = (
    "Refund order {}", "Track parcel {} for the customer", "Change the address of account {}", "Cancel booking {}",
    "Send invoice {} again",
)  # fmt: skip

_ASKS = (
    "could you {do} please", "I need somebody to {do}", "{do}", "hi, is there any way to {do}?", "we want to {do}",
    "can you help me {do}", "my boss wants me to {do}, how?", "please {do} as soon as you can", "{do} for me, thanks",
    "I have been trying all morning to {do}", "would it be possible to {do}", "so the thing is that I must {do}",
)  # fmt: skip
_DOES = (
    ("{verb} the {thing} from last {day}", ("cancel", "refund", "return", "dispute", "reopen", "exchange")),
    ("find out where my {thing} is", ("",)),
    ("{verb} my {thing} to another {place}", ("move", "send", "redirect", "forward", "transfer")),
    ("{verb} who {did} the {thing}", ("see", "check", "tell me", "look up")),
    ("{verb} a {thing} for {who}", ("book", "order", "reserve", "set up", "arrange", "schedule")),
    ("{verb} the {thing} before {day}", ("finish", "pay", "confirm", "approve", "sign off", "extend")),
)  # fmt: skip
_THINGS = (
    "parcel", "subscription", "invoice", "booking", "table", "ticket", "contract", "meeting", "payment", "blue bicycle",
    "licence", "password", "insurance claim", "order of printer paper", "delivery", "warranty", "seat by the window",
    "course", "report", "shipment of glassware", "pension statement", "hire car", "visa appointment", "gift card",
)  # fmt: skip
_DAYS = ("Monday", "week", "month", "the holidays", "quarter", "noon", "the weekend", "spring", "year's end")
_PLACES = ("address", "branch", "account", "country", "name", "flat", "warehouse", "colleague", "phone")
_WHO = ("six people", "my mother", "the whole team", "two adults and a dog", "our new hire", "a customer", "me alone")
_DID = ("changed", "opened", "paid for", "lost", "signed", "ordered", "deleted", "shipped")
_ASIDES = (
    "", "", "", " I am not in a hurry.", " It was supposed to be done already.", " The last answer did not help.",
    " Nobody picks up the phone.", " I can send papers if needed.", " We are abroad at the moment.",
    " This is the second time it happens.", " It says error on my screen.", " Please no forms.",
)  # fmt: skip


def request(rng: random.Random) -> str:
    form, verbs = rng.choice(_DOES)
    do = form.format(
        verb=rng.choice(verbs), thing=rng.choice(_THINGS), day=rng.choice(_DAYS), place=rng.choice(_PLACES),
        who=rng.choice(_WHO), did=rng.choice(_DID),
    )  # fmt: skip
    text = rng.choice(_ASKS).format(do=do) + "." * (rng.random() < 0.5) + rng.choice(_ASIDES)
    return text[0].upper() + text[1:] if rng.random() < 0.7 else text


@cache
def bfcl() -> list[str]:
    """The first sentences of BFCL's multi-turn tasks, 200."""
    return msgspec.json.decode((Path(__file__).parent / "bfcl" / "requests.json").read_bytes(), type=list[str])


def goal(kind: str, rng: random.Random, number: int) -> str:
    match kind:
        case "free":
            return request(rng)
        case "bfcl":
            return rng.choice(bfcl())
        case _:
            return rng.choice(_TEMPLATES).format(10_000 + number)
