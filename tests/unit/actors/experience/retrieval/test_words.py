"""The word index: BM25 that can be added to and taken from, and whose scores say how much of a query is covered."""

import random

import numpy as np

from actors.experience.retrieval.words import WordIndex, terms


def index_of(*texts: str) -> WordIndex:
    index = WordIndex()
    for slot, text in enumerate(texts):
        index.put(slot, text)
    return index


def test_names_of_tools_count_whole_and_in_parts():
    assert terms("call search_flights, then bookSeat") == [
        "call", "search_flights", "search", "flights", "then", "bookseat", "book", "seat",
    ]  # fmt: skip


def test_the_text_with_the_rarer_words_of_the_query_covers_more_of_it():
    index = index_of("the refund policy", "the order", "the order", "the order")
    refund, order, *_ = index.coverage("the refund", 4)
    assert refund > order > 0


def test_a_text_that_says_all_covers_about_all_and_a_text_that_shares_one_word_little():
    index = index_of("refund an order", "book a flight", "cancel a booking")
    cover = index.coverage("refund an order", 3)
    assert cover[0] > 0.9
    assert index.coverage("an entirely different question about something else", 3).max() < 0.2


def test_words_that_no_text_has_count_against_the_texts():
    index = index_of("refund an order", "book a flight")
    assert index.coverage("refund", 2)[0] > 2 * index.coverage("refund zebra quartz", 2)[0]


def test_after_any_additions_and_removals_scores_are_those_of_an_index_made_afresh():
    rng = random.Random(0)
    vocabulary = [f"word{number}" for number in range(60)]
    index, texts = WordIndex(), dict[int, str]()
    for _ in range(600):
        slot = rng.randrange(80)
        if slot in texts:
            index.remove(slot, texts.pop(slot))
        if rng.random() < 0.7:
            texts[slot] = " ".join(rng.choices(vocabulary, k=rng.randint(0, 12)))
            index.put(slot, texts[slot])
    fresh = WordIndex()
    for slot, text in texts.items():
        fresh.put(slot, text)
    for _ in range(20):
        query = " ".join(rng.choices(vocabulary, k=5))
        assert np.allclose(index.coverage(query, 80), fresh.coverage(query, 80))


def test_no_texts_and_no_words_are_no_error():
    assert WordIndex().coverage("anything", 3).tolist() == [0, 0, 0]
    assert index_of("a text").coverage("", 1).tolist() == [0]
