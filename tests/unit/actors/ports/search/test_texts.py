"""The index by words: BM25 that can be added to and taken from, and whose shares say what is covered of a request."""

import random

import numpy as np

from actors.ports.search.texts import TextIndex


def index_of(*texts: str) -> TextIndex:
    index = TextIndex()
    for slot, text in enumerate(texts):
        index.put(slot, ((1.0, text),))
    return index


def test_a_typing_error_and_another_ending_still_find():
    index = index_of("refund the order", "book a flight", "reset a password")
    assert index.coverage("rfund of my oders", 3).argmax() == 0
    assert index.coverage("flihgt bokings", 3).argmax() == 1


def test_however_long_the_story_around_what_somebody_wants_it_takes_no_more_away():
    index = index_of("refund an order", "book a flight", "reset a password")
    wish = "Please refund my order, since yesterday it rains and the box came open and wet and nobody answers."
    story = " My sister visits us every summer with her noisy dogs, so we painted that garage green."
    told, more = index.coverage(wish, 3), index.coverage(wish + story, 3)
    assert told[0] > 2 * max(told[1:])
    assert more[0] >= 0.9 * told[0]


def test_a_word_of_a_field_with_more_weight_counts_more():
    index = TextIndex()
    index.put(0, ((3.0, "refund"), (1.0, "an order")))
    index.put(1, ((3.0, "order"), (1.0, "a refund")))
    assert index.coverage("refund", 2).argmax() == 0


def test_a_script_without_spaces_is_found():
    index = index_of("退款我的订单", "预订航班", "重置密码")
    cover = index.coverage("订单退款", 3)
    assert cover.argmax() == 0
    assert cover[0] > 0.3 > max(cover[1:])


def test_a_text_that_says_all_covers_about_all_and_a_text_that_shares_one_word_little():
    index = index_of("refund an order", "book a flight", "cancel a booking")
    cover = index.coverage("refund an order", 3)
    assert cover[0] > 0.9
    assert index.coverage("an entirely different question about something else", 3).max() < 0.2


def test_after_any_additions_and_removals_scores_are_those_of_an_index_made_afresh():
    rng = random.Random(0)
    vocabulary = [f"word{number}" for number in range(60)]
    index, texts = TextIndex(), dict[int, str]()
    for _ in range(600):
        slot = rng.randrange(80)
        if slot in texts:
            index.remove(slot, ((1.0, texts.pop(slot)),))
        if rng.random() < 0.7:
            texts[slot] = " ".join(rng.choices(vocabulary, k=rng.randint(0, 12)))
            index.put(slot, ((1.0, texts[slot]),))
    fresh = TextIndex()
    for slot, text in texts.items():
        fresh.put(slot, ((1.0, text),))
    for _ in range(20):
        query = " ".join(rng.choices(vocabulary, k=5))
        assert np.allclose(index.coverage(query, 80), fresh.coverage(query, 80))
