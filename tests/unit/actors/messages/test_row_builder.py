"""Rows that grow: what is context, what was sampled, and when a turn may go on with one."""

from actors.messages import RowBuilder, floats_array, ids_array, pack_array, steps_array


def ids(*numbers: int) -> bytes:
    return pack_array(numbers, "<i4")


def grown(**about) -> RowBuilder:
    row = RowBuilder(0.7, **about)
    for step, prompt, sampled in ((2, ids(1, 2), ids(3)), (5, ids(1, 2, 3, 4), ids(5, 6))):
        assert row.continued_by(prompt)
        count = len(sampled) // 4
        logprobs, versions = pack_array([-0.5] * count, "<f4"), ids(*[step] * count)
        row.extend(step, prompt=prompt, sampled=sampled, logprobs=logprobs, versions=versions)
    return row


def test_context_is_masked_and_every_sampled_token_keeps_its_own():
    row = grown(hint=(0, 1)).pack()
    assert ids_array(row.ids).tolist() == [1, 2, 3, 4, 5, 6]
    assert steps_array(row.step).tolist() == [-1, -1, 2, -1, 5, 5]
    assert floats_array(row.logprobs).tolist() == [0, 0, -0.5, 0, -0.5, -0.5]
    assert ids_array(row.versions).tolist() == [-1, -1, 2, -1, 5, 5]
    assert (row.hint, row.temperature) == ((0, 1), 0.7)


def test_only_a_prompt_that_begins_with_exactly_its_ids_continues_a_row():
    row = grown()
    assert len(row) == 6
    assert row.continued_by(ids(1, 2, 3, 4, 5, 6))
    assert row.continued_by(ids(1, 2, 3, 4, 5, 6, 9))
    assert not row.continued_by(ids(1, 2, 3, 4, 5))
    assert not row.continued_by(ids(1, 2, 3, 4, 5, 7, 6))
    assert not row.continued_by(ids(0, 1, 2, 3, 4, 5, 6))


def test_an_assumed_version_is_that_of_the_sampled_tokens_alone():
    row = grown()
    row.assume(8)
    assert ids_array(row.pack().versions).tolist() == [-1, -1, 8, -1, 8, 8]
