"""Which requests are the same, and what of their answers is kept: time is moved by hand."""

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.assignment import CacheLimits
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BF16
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.request_digest import RequestDigest, digest
from services.worker.domain.response_cache import ResponseCache, kept_size

VERSION = "a" * 64


def outputs(*rows: float) -> dict[str, Array]:
    return {"y": np.array(rows, np.float32)}


def key(name: str) -> RequestDigest:
    return RequestDigest(name.encode())


def texts(*words: str) -> Array:
    array = np.empty(len(words), object)
    array[:] = words
    return array


ONE = np.array([[1, 2]], np.float32)

DIFFERENT: dict[str, Callable[[], RequestDigest]] = {
    "another version": lambda: digest("b" * 64, InferRequest({"x": ONE}, ("y",))),
    "another tenant": lambda: digest(VERSION, InferRequest({"x": ONE}, ("y",), tenant="t")),
    "another name": lambda: digest(VERSION, InferRequest({"x2": ONE}, ("y",))),
    "another datatype": lambda: digest(VERSION, InferRequest({"x": ONE.view(np.int32)}, ("y",))),
    "another shape": lambda: digest(VERSION, InferRequest({"x": ONE.reshape(2, 1)}, ("y",))),
    "other data": lambda: digest(VERSION, InferRequest({"x": ONE + 1}, ("y",))),
    "another output": lambda: digest(VERSION, InferRequest({"x": ONE}, ("z",))),
    "more outputs": lambda: digest(VERSION, InferRequest({"x": ONE}, ("y", "z"))),
    "more inputs": lambda: digest(VERSION, InferRequest({"x": ONE, "w": ONE}, ("y",))),
    "half floats": lambda: digest(VERSION, InferRequest({"x": ONE.astype(np.float16)}, ("y",))),
    "brain floats": lambda: digest(VERSION, InferRequest({"x": ONE.astype(BF16.dtype)}, ("y",))),
    "no rows": lambda: digest(VERSION, InferRequest({"x": ONE[:0]}, ("y",))),
    "a scalar": lambda: digest(VERSION, InferRequest({"x": np.array(1, np.float32)}, ("y",))),
    "texts": lambda: digest(VERSION, InferRequest({"x": texts("ab", "c")}, ("y",))),
    "the same letters in other texts": lambda: digest(
        VERSION, InferRequest({"x": texts("a", "bc")}, ("y",))
    ),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_whatever_an_answer_depends_on_makes_requests_differ(
    other: Callable[[], RequestDigest],
) -> None:
    """Each of these is a request of its own; asked twice it is the same."""
    assert other() == other()
    others = [make() for make in DIFFERENT.values()]
    assert others.count(other()) == 1
    assert other() != digest(VERSION, InferRequest({"x": ONE}, ("y",)))


def test_how_arrays_lie_and_outputs_are_ordered_makes_no_difference() -> None:
    """A view with strides and a copy are the same data; outputs are wanted in any order."""
    wide = np.array([[1, 9, 2, 9]], np.float32)
    assert digest(VERSION, InferRequest({"x": wide[:, ::2]}, ("y", "z"))) == digest(
        VERSION, InferRequest({"x": ONE.copy()}, ("z", "y"))
    )


def test_an_answer_is_kept_for_its_time() -> None:
    """It is there until its time is over, to the moment; then its bytes are free."""
    cache = ResponseCache(CacheLimits(max_bytes=10_000, ttl=5.0))
    assert cache.get(key("a"), 0.0) is None
    assert cache.put(key("a"), outputs(1, 2), 10.0)
    found = cache.get(key("a"), 14.99)
    assert found is not None
    assert found["y"].tolist() == [1, 2]
    assert cache.get(key("a"), 15.0) is None
    assert (len(cache), cache.size) == (0, 0)


def test_asking_does_not_make_an_answer_younger() -> None:
    """Used at the last moment, it is too old a moment later."""
    cache = ResponseCache(CacheLimits(max_bytes=10_000, ttl=5.0))
    cache.put(key("a"), outputs(1), 0.0)
    assert cache.get(key("a"), 4.9) is not None
    assert cache.get(key("a"), 5.1) is None


def test_the_answer_used_longest_ago_makes_room() -> None:
    """Two fit: the third pushes out the one that nobody asked for since."""
    size = kept_size(outputs(1))
    cache = ResponseCache(CacheLimits(max_bytes=2 * size))
    for name in "ab":
        cache.put(key(name), outputs(1), 0.0)
    assert cache.get(key("a"), 1e9) is not None
    cache.put(key("c"), outputs(1), 1e9)
    assert [cache.get(key(name), 1e9) is not None for name in "abc"] == [True, False, True]
    assert cache.size == 2 * size


def test_an_answer_beyond_the_bound_is_not_kept() -> None:
    """Neither is anything given up for it; exactly the bound fits."""
    most = kept_size(outputs(*range(100)))
    cache = ResponseCache(CacheLimits(max_bytes=most))
    assert cache.put(key("a"), outputs(1), 0.0)
    assert not cache.put(key("b"), outputs(*range(101)), 0.0)
    assert cache.get(key("a"), 0.0) is not None
    assert cache.put(key("c"), outputs(*range(100)), 0.0)
    assert (len(cache), cache.size) == (1, most)


def test_what_is_kept_is_a_copy_that_nobody_changes() -> None:
    """A view of a batch does not keep the batch, and a later writer fails."""
    batch = np.arange(1000, dtype=np.float32)
    cache = ResponseCache(CacheLimits(max_bytes=10_000))
    cache.put(key("a"), {"y": batch[:2], "s": texts("é")}, 0.0)
    batch[:] = 7
    found = cache.get(key("a"), 0.0)
    assert found is not None
    assert found["y"].tolist() == [0, 1]
    assert found["y"].base is None
    with pytest.raises(ValueError, match="read-only"):
        found["y"][0] = 3


NAMES = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "wait"]), NAMES, st.integers(0, 40)), max_size=60
)


@given(STEPS, st.integers(0, 5_000), st.sampled_from([0.0, 7.0]))
def test_any_use_keeps_the_bounds(steps: list[tuple[str, str, int]], most: int, ttl: float) -> None:
    """Against a plain model: the same is found, in the same bounds, after each step."""
    cache, now = ResponseCache(CacheLimits(max_bytes=most, ttl=ttl)), 0.0
    model: OrderedDict[str, tuple[Mapping[str, Array], float]] = OrderedDict()
    for what, name, number in steps:
        for old in [n for n, (_, at) in model.items() if ttl and at + ttl <= now]:
            del model[old]
        if what == "wait":
            now += number / 4
        elif what == "put":
            value = outputs(*range(number))
            fits = cache.put(key(name), value, now)
            assert fits == (kept_size(value) <= most)
            if fits:
                model.pop(name, None)
                while sum(kept_size(v) for v, _ in model.values()) + kept_size(value) > most:
                    model.popitem(last=False)
                model[name] = (value, now)
        else:
            found = cache.get(key(name), now)
            assert (found is not None) == (name in model)
            if found is not None:
                assert (found["y"] == model[name][0]["y"]).all()
                model.move_to_end(name)
        cache.check()
