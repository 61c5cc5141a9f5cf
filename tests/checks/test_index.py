"""An index finds what a search would, in the same order, and never answers for another tuple."""

from hangdrill.checks.index import Index


def test_index_finds_all_items_of_a_key_in_order():
    index = Index[str](len)
    assert index.find(("a", "bb", "c"), 1) == ("a", "c")
    assert index.find(("a", "bb", "c"), 3) == ()


def test_index_is_made_anew_for_another_tuple():
    index = Index[str](len)
    first, second = ("a",), ("b", "c")
    assert [index.find(items, 1) for items in (first, second, first, ())] == [("a",), ("b", "c"), ("a",), ()]


def test_index_is_made_once_for_the_same_tuple():
    asked = []
    index = Index[str](lambda item: asked.append(item) or len(item))
    items = ("a", "bb")
    assert [index.find(items, 1), index.find(items, 2)] == [("a",), ("bb",)]
    assert asked == ["a", "bb"]
