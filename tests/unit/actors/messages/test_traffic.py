"""Which weights sampled a token, as an engine says it."""

import pytest

from actors.messages import VersionSpan, token_versions, version_number


@pytest.mark.parametrize(("label", "version"), [("0", 0), ("17", 17), ("default", -1), ("-3", -1), ("", -1), ("²", -1)])
def test_a_label_that_is_no_number_is_minus_one(label, version):
    assert version_number(label) == version


@pytest.mark.parametrize(
    ("spans", "versions"),
    [
        ((), [-1, -1, -1, -1]),
        ([VersionSpan(3, 0, 2), VersionSpan(4, 3, 4)], [3, 3, -1, 4]),
        ([VersionSpan(3, -5, 2), VersionSpan(4, 1, 99)], [3, 4, 4, 4]),
        ([VersionSpan(3, -5, -1), VersionSpan(4, 2, 1), VersionSpan(5, 9, 12)], [-1, -1, -1, -1]),
    ],
)
def test_a_token_has_the_version_of_the_last_span_over_it(spans, versions):
    assert token_versions(spans, 4).tolist() == versions
