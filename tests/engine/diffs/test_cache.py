"""A memory that forgets what was not used for longest."""

from kedge.engine.diffs.diffs import Bounded


def test_what_was_used_last_is_kept() -> None:
    """Looking at a value counts as using it."""
    memory: Bounded[str, int] = Bounded(2)
    memory.put("a", 1)
    memory.put("b", 2)
    assert memory.get("a") == 1
    memory.put("c", 3)
    assert [memory.get(key) for key in "abc"] == [1, None, 3]


def test_sizes_count() -> None:
    """A large value takes the place of several; one that is larger than all is not kept."""
    memory: Bounded[str, int] = Bounded(4)
    for key in "abcd":
        memory.put(key, 1)
    memory.put("large", 1, size=3)
    assert [memory.get(key) for key in ("a", "b", "c", "d", "large")] == [None, None, None, 1, 1]
    memory.put("huge", 1, size=5)
    assert memory.get("huge") is None
    memory.put("e", 1, size=4)
    assert memory.get("e") == 1


def test_a_value_takes_the_place_of_the_one_before() -> None:
    """It does not take room twice."""
    memory: Bounded[str, int] = Bounded(2)
    memory.put("a", 1)
    memory.put("a", 3)
    memory.put("b", 2)
    assert (memory.get("a"), memory.get("b")) == (3, 2)
