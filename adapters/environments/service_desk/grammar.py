"""How customers write: a grammar of free words, with typos, several wishes and missing details.

A request is an opener, one or two wishes, perhaps a reason, and a closer; each drawn on its own. Phrases for held-out
tasks are never used in training tasks or demonstrations. Ids and e-mail addresses are made, not chosen from a list:
whoever works here must copy what they have never seen.
"""

import random
from typing import Literal

from actors.ports.environments import Split
from adapters.environments.made_names import made_name

Wish = Literal["refund", "label", "cancel", "track", "move", "reset", "unlock", "close"]
Phrases = dict[Split, tuple[str, ...]]


def _lines(text: str) -> tuple[str, ...]:
    """The lines of `text`; a line with nothing but "_" is the empty phrase."""
    return tuple(line.strip().replace("_", "") for line in text.strip().splitlines())


def _phrases(train: str, heldout: str) -> Phrases:
    return {"train": _lines(train), "heldout": _lines(heldout)}


WISHES: dict[Wish, Phrases] = {
    "refund": _phrases(
        """
        please refund me{at}
        i want my money back{at}
        can i get a refund{at}
        i need a refund{at}
        give me my money back{at}
        i would like a refund{at}
        you owe me a refund{at}
        please pay me back{at}
        i want to be refunded{at}
        i am asking for my money back{at}
        could you refund my order{at}
        a refund is what i need{at}
        """,
        """
        i need my money back now{at}
        would you pay back what i gave you{at}
        can you please get me refunded{at}
        my money, i would like it back{at}
        """,
    ),
    "label": _phrases(
        """
        please send me a return label{at}
        i need a label{at}
        can i get a return label{at}
        i want to send it back{at}
        how do i return this{at}
        i would like to return it{at}
        send me the label to return it{at}
        i want to return my order{at}
        a return label is what i need{at}
        could you mail me a label{at}
        i have to send it back{at}
        where is my return label{at}
        """,
        """
        i would like a label so i can send it back{at}
        please mail me the return label{at}
        it has to go back, send a label{at}
        can you send me the label{at}
        """,
    ),
    "cancel": _phrases(
        """
        please cancel my order{at}
        i want to cancel{at}
        cancel it{at}
        can you cancel the order{at}
        i do not want it any more{at}
        i need to cancel{at}
        please stop the order{at}
        i would like to cancel my order{at}
        do not send it any more{at}
        call off my order{at}
        could you stop it{at}
        i have to call it off{at}
        """,
        """
        i would like you to stop the order{at}
        please call it off{at}
        can you cancel it, i do not want it{at}
        my order, i need to cancel it{at}
        """,
    ),
    "track": _phrases(
        """
        where is my parcel{at}
        where is my order{at}
        can you tell me where it is{at}
        please track my parcel{at}
        i am still waiting for my parcel{at}
        when does my parcel come{at}
        has my parcel been sent{at}
        i want to know where my parcel is{at}
        my parcel is not here yet{at}
        could you find my parcel{at}
        what happened to my parcel{at}
        my order has not come yet{at}
        """,
        """
        can you find out where my parcel is{at}
        i am waiting, where is it{at}
        please tell me when my parcel does come{at}
        my parcel has not come, what happened{at}
        """,
    ),
    "move": _phrases(
        """
        please send it to {city} now{at}
        i moved to {city}, change the address{at}
        change the address to {city}{at}
        can you deliver to {city}{at}
        my new address is in {city}{at}
        i live in {city} now{at}
        i want it delivered to {city}{at}
        the address should be {city}{at}
        please change my address to {city}{at}
        i need it in {city}{at}
        could you deliver it in {city}{at}
        ship it to {city} instead{at}
        """,
        """
        i need the address to be {city}{at}
        can you ship it to my new address in {city}{at}
        please deliver it to {city} instead{at}
        i moved, i want it in {city}{at}
        """,
    ),
    "reset": _phrases(
        """
        i forgot my password{at}
        please reset my password{at}
        i need a new password{at}
        my password does not work{at}
        can you give me a new password{at}
        i can not remember my password{at}
        i lost my password{at}
        i want to change my password{at}
        could you reset it, the password is gone{at}
        the password is wrong every time{at}
        i would like a new password{at}
        it does not take my password{at}
        """,
        """
        i need to reset the password{at}
        my password is gone, can i get a new one{at}
        i can not remember it, please give me a new password{at}
        i would like to change the password i lost{at}
        """,
    ),
    "unlock": _phrases(
        """
        my account is locked{at}
        please unlock my account{at}
        i am locked out{at}
        it says my account is blocked{at}
        i can not get in, it is locked{at}
        you locked my account{at}
        can you unlock me{at}
        i need my account unlocked{at}
        why is my account blocked{at}
        could you unblock my account{at}
        my account has been blocked{at}
        i want to get in but it is locked{at}
        """,
        """
        can you get me in, i am locked out{at}
        i need you to unblock it{at}
        it says locked, please unlock it{at}
        why can i not get in, is my account blocked{at}
        """,
    ),
    "close": _phrases(
        """
        please close my account{at}
        i want to close my account{at}
        delete my account{at}
        i do not need my account any more{at}
        can you delete my account{at}
        i want to leave{at}
        i would like to delete my account{at}
        please remove my account{at}
        remove me{at}
        could you close the account{at}
        i am leaving, close it{at}
        take my account away{at}
        """,
        """
        i would like you to remove my account{at}
        i am leaving, i do not need it any more{at}
        can you take me away, delete it{at}
        please close it, i want to leave{at}
        """,
    ),
}
"""What is wanted, `{at}` where the order or the account is named, if it is."""

AT_ORDER = (" for order {id}", " for {id}", ", order {id}", ", it is {id}", ", my order is {id}", " ({id})")
AT_ACCOUNT = (" for {id}", ", my email is {id}", ", account {id}", ", it is {id}", ", i am {id}", " ({id})")

OPENERS = _phrases(
    """
    _
    hello,
    hi,
    hey,
    good morning,
    dear team,
    hello there,
    excuse me,
    hi there,
    so,
    """,
    """
    hey there,
    hello team,
    good morning team,
    """,
)
REASONS = _phrases(
    """
    _
    it came broken
    i waited two weeks
    my wife is angry
    this is the third time i ask
    i am on a trip
    nobody answers the phone
    it is the wrong size
    i have had enough
    i tried it all day
    my boss needs it
    the website does not help
    """,
    """
    i waited all day
    nobody answers, i tried it two weeks
    my boss is angry
    """,
)
CLOSERS = _phrases(
    """
    _
    thanks
    thank you
    please help
    thanks a lot
    please hurry
    best
    thank you so much
    bye
    i am waiting
    """,
    """
    please help, thanks
    thank you, bye
    hurry please
    """,
)
JOINS = (" and also ", ". also, ", ", and then ", ". then ")
AGAIN = _phrases(
    """
    thanks, one more thing, {wish}
    great, also {wish}
    i am back, {wish}
    now {wish}
    hello again, {wish}
    """,
    """
    great, one more thing, {wish}
    thanks, i am back, {wish}
    """,
)
"""How somebody comes back after the first answer."""
COMPLAINTS = _phrases(
    """
    no, that is not done. {wish}
    nothing happened! {wish}
    you did not do it. {wish}
    that is wrong. {wish}
    """,
    """
    no, nothing happened. {wish}
    that is not it. {wish}
    """,
)
"""How somebody comes back to whom "done" was said and nothing was done."""
DETAILS = _phrases(
    """
    {id}
    it is {id}
    sorry, {id}
    oh, it is {id}
    that would be {id}
    here: {id}
    """,
    """
    sorry, it is {id}
    oh, that would be {id}
    """,
)
NUDGE = "i told you all i know"
"""To a question about what was said already."""

CITIES = (
    "Leeds", "Oslo", "Rome", "Bonn", "Lima", "Riga", "Bern", "Cork", "Nice", "Graz", "Lyon", "Bari", "Turin", "Porto",
    "Delhi", "Osaka",
)  # fmt: skip
MAILS = ("box.io", "mail.com", "post.net", "work.org")


def order_id(rng: random.Random, number: int) -> str:
    """Such as K4731."""
    return rng.choice("BCDFGHKLMQTVXZ") + str(number)


def email(rng: random.Random) -> str:
    """Such as zokari@box.io."""
    return f"{made_name(rng, rng.randint(2, 4))}@{rng.choice(MAILS)}"


def wish_text(rng: random.Random, split: Split, wish: Wish, id: str, city: str) -> str:
    """The wish in words; without its order or account if `id` is empty."""
    at = rng.choice(AT_ACCOUNT if wish in ("reset", "unlock", "close") else AT_ORDER).format(id=id) if id else ""
    return rng.choice(WISHES[wish][split]).format(at=at, city=city)


def request(rng: random.Random, split: Split, wishes: list[str]) -> str:
    """The opening message around one or two worded wishes."""
    body = wishes[0] + "".join(rng.choice(JOINS) + wish for wish in wishes[1:])
    opener, reason, closer = (rng.choice(part[split]) for part in (OPENERS, REASONS, CLOSERS))
    text = f"{opener} {body}" if opener else body
    for part in (reason, closer):
        text += f". {part}" if part else ""
    return typo(rng, text) if rng.random() < TYPOS else text


TYPOS = 0.3
"""Share of opening messages with a typing error."""


def typo(rng: random.Random, text: str) -> str:
    """`text` with one error in a word of four letters or more; ids, addresses and cities are typed with care."""
    words = text.split(" ")
    places = [at for at, word in enumerate(words) if len(word) >= 4 and word.isalpha() and word.islower()]
    if not places:
        return text
    at = rng.choice(places)
    word, spot = words[at], rng.randrange(1, len(words[at]) - 1)
    words[at] = rng.choice(
        [
            word[:spot] + word[spot + 1] + word[spot] + word[spot + 2 :],
            word[:spot] + word[spot + 1 :],
            word[:spot] + word[spot] + word[spot:],
        ]
    )
    return " ".join(words)
