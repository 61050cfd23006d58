"""`IdentityMap` holds its keys: an address is never two objects."""

from __future__ import annotations

import gc
import weakref

from windfall.identity_map import IdentityMap


class Equal:
    """Equal to everything, and not hashable."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_objects_are_told_apart_by_identity() -> None:
    table = IdentityMap[Equal, int]()
    one, two = Equal(), Equal()
    table[one] = 1
    assert table.get(one) == 1 and table[one] == 1 and one in table
    assert table.get(two) is None and two not in table
    table[two] = 2
    table[one] = 3
    assert table.values() == [3, 2] and len(table) == 2
    assert [key is found for key, found in zip(table, (one, two), strict=True)] == [True, True]


def test_no_address_is_used_twice() -> None:
    table = IdentityMap[object, int]()
    for number in range(1000):
        one = type("Kind", (), {})()
        assert one not in table
        table[one] = number
        del one
    gc.collect()
    assert len(table) == 1000


def test_it_holds_only_as_long_as_it_lives() -> None:
    table, one = IdentityMap[Equal, int](), Equal()
    table[one] = 1
    seen = weakref.ref(one)
    del one
    assert seen() is not None
    del table
    assert seen() is None
