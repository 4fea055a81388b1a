from adapters.live.names import tool_names


def test_what_is_a_name_already_keeps_it():
    assert tool_names(["read_file", "get-env"]) == {"read_file": "read_file", "get-env": "get-env"}


def test_what_a_name_cannot_have_is_replaced():
    assert tool_names(["GET /users/{id}"]) == {"GET /users/{id}": "GET_users_id"}


def test_long_names_are_cut_to_64_and_stay_apart():
    first, second = "operation_" * 9 + "a", "operation_" * 9 + "b"
    names = tool_names([first, second])
    assert all(len(name) <= 64 for name in names.values())
    assert names[first] != names[second]


def test_of_colliding_ones_the_exact_one_keeps_its_name_and_the_others_are_told_apart():
    names = tool_names(["a.b", "a_b", "a/b"])
    assert names["a_b"] == "a_b"
    assert len(set(names.values())) == 3


def test_the_order_of_listing_changes_no_name():
    originals = ["a.b", "a_b", "a/b", "x" * 80, "ünïcode", "日本", "語"]
    assert tool_names(originals) == tool_names(reversed(originals))


def test_a_name_without_a_usable_character_is_one_all_the_same():
    names = tool_names(["日本", "語", ""])
    assert len(set(names.values())) == 3
    assert all(0 < len(name) <= 64 and name.isascii() for name in names.values())
