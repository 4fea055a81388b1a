"""The words of the travel desk: people, cities, record ids.

Every one of them is a single token of the warm start's vocabulary, which a tiny model copies from the prompt more
surely than several. A name that is not there falls into pairs of letters; those are learnt too (`made_names`).
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PEOPLE = _words("Mia Leo Ana Tom Eva Max Ida Jon Zoe Ben Amy Sam Kim Rob Liv Dan Nora Paul Rita Hugo")
CITIES = _words("Oslo Rome Bonn Lima Kyiv Riga Bern Cork Nice Graz Lyon Bari Turin Porto Delhi Osaka")
RECORD_IDS = tuple(letter + str(digit) for letter in "KQVXZ" for digit in range(8))
"""Ids of persons, flights, orders and bookings alike: only the key beside one tells what it is."""
