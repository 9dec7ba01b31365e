"""ModelInfer of the front: what is remembered by forms of messages never changes how a call ends."""

import asyncio
import struct
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inference import open_inference_pb2 as oip

from services.rpc.errors import CancelledError, Kind
from services.worker.domain.counters import Outcome
from tests.unit.worker.servicers.fast_desk import HEAD, Asking, Desk, all_ended, desk, request


def message(**changes: object) -> bytes:
    return request(**changes).SerializeToString()  # type: ignore[arg-type]


async def learnt(at: Desk, *messages: bytes) -> None:
    """Let it see messages twice, and check that a third one is not looked up any more."""
    for _ in range(2):
        await at.answers(messages)
    before = at.shelf.lookups
    await at.answers(messages)
    assert at.shelf.lookups == before


async def test_a_known_form_is_answered_from_what_is_known() -> None:
    """Other data and other ids are the same form; the answers are those of the general way."""
    async with desk() as fast, desk(restless=True) as general:
        await learnt(fast, message())
        lookups = fast.shelf.lookups
        sent = [message(k=k, ident=ident) for k in range(5) for ident in ("", "a", "id-7" * 20)]
        assert await fast.answers(sent) == await general.answers(sent)
        assert fast.shelf.lookups == lookups


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"rows": 2}, id="other shape"),
        pytest.param({"ident": "é"}, id="id beyond ASCII"),
        pytest.param({"ident": "x" * 200}, id="long id"),
    ],
)
async def test_another_form_is_read_anew(changed: dict[str, object]) -> None:
    """And answered as the general way does."""
    async with desk() as fast, desk(restless=True) as general:
        await learnt(fast, message())
        before = fast.shelf.lookups
        assert await fast.answers([message(**changed)]) == await general.answers(
            [message(**changed)]
        )
        assert fast.shelf.lookups == before + 1


async def test_data_of_another_length_is_refused_as_ever() -> None:
    """Bytes moved from one tensor to the other have the message's length, but not its form."""
    async with desk() as fast, desk(restless=True) as general:
        await learnt(fast, message())
        wrong = request()
        x, k = wrong.raw_input_contents
        del wrong.raw_input_contents[:]
        wrong.raw_input_contents.extend([x + k[:2], k[2:]])
        sent = [wrong.SerializeToString()]
        assert len(sent[0]) == len(message())
        ends = await fast.answers(sent)
        assert ends == await general.answers(sent)
        assert ends[0][0] is Kind.INVALID_ARGUMENT  # type: ignore[index]


async def test_a_batch_mixes_forms_and_others() -> None:
    """Each gets its own rows."""
    async with desk() as fast, desk(restless=True) as general:
        await learnt(fast, message(), message(rows=2))
        typed = request(rows=3)
        del typed.raw_input_contents[:]
        typed.inputs[0].contents.fp32_contents.extend(range(9))
        typed.inputs[1].contents.int64_contents.extend((7, 8, 9))
        sent = [message(k=1), message(rows=2, k=2), typed.SerializeToString(), message(k=3)]
        assert await fast.answers(sent) == await general.answers(sent)


async def test_one_bad_request_of_a_batch_fails_alone() -> None:
    """The others of its form are answered."""
    async with desk() as fast, desk(restless=True) as general:
        await learnt(fast, message())
        sent = [message(k=k) for k in (1, -1, 2)]
        ends = await fast.answers(sent)
        assert ends == await general.answers(sent)
        assert ends[1][0] is Kind.INVALID_ARGUMENT  # type: ignore[index]
        assert counts(fast) == {Outcome.SUCCEEDED: 5, Outcome.INVALID: 1}


async def test_what_is_known_ends_with_the_roster() -> None:
    """A version that changed is looked up again, and so is one that is gone."""
    async with desk() as fast:
        await learnt(fast, message())
        fast.shelf.moves += 1
        before = fast.shelf.lookups
        await fast.answers([message()])
        assert fast.shelf.lookups == before + 1


async def test_a_version_that_is_gone_is_not_held() -> None:
    """Also if no call comes any more: its session would keep its memory."""
    async with desk() as fast:
        await learnt(fast, message())
        gone = weakref.ref(fast.shelf.served.batcher)
        answers = fast.inference._answers
        assert list(answers) == [gone()]
        fast.shelf.moves += 1
        fast.shelf.told()
        assert not answers
        assert not fast.inference._books


async def test_a_known_form_is_looked_at_once_a_guilty_request_is_known() -> None:
    """Any could be that one again; afterwards forms are what they were."""
    async with desk() as fast:
        await learnt(fast, message())
        before = fast.shelf.lookups
        fast.suspicion.is_alert = True
        await fast.answers([message()])
        assert fast.shelf.lookups == before + 1
        fast.suspicion.is_alert = False
        await fast.answers([message()])
        assert fast.shelf.lookups == before + 1


async def test_a_form_belongs_to_its_head() -> None:
    """The same bytes on another route, or of another tenant, are read anew."""
    async with desk() as fast:
        await learnt(fast, message())
        before = fast.shelf.lookups
        call = Asking(head=replace(HEAD, tenant="p"))
        fast.inference.begin(call, message())
        assert fast.shelf.lookups == before + 1
        await all_ended([call])


async def test_callers_that_go_leave_nothing() -> None:
    """They are counted as cancelled, their rows are not computed, the others are answered."""
    async with desk() as fast:
        await learnt(fast, message())
        before = fast.statistics.rows
        calls = [Asking() for _ in range(6)]
        for call in calls:
            fast.inference.begin(call, message())
        for call in calls[::2]:
            assert call.on_gone is not None
            call.on_gone(CancelledError("the caller has gone"))
        await all_ended(calls[1::2])
        fast.check_idle()
        assert not any(call.told for call in calls[::2])
        assert fast.statistics.rows == before + 3
        assert counts(fast)[Outcome.CANCELLED] == 3


async def test_answers_beyond_the_limit_are_refused() -> None:
    """Also when their form is known."""
    async with desk(limit=60) as fast, desk(restless=True, limit=60) as general:
        sent = [message(rows=1), message(rows=6)]
        for _ in range(4):
            ends = await fast.answers(sent)
            assert ends == await general.answers(sent)
        assert ends[1][0] is Kind.RESOURCE_EXHAUSTED  # type: ignore[index]


async def test_versions_that_are_not_batched_are_served() -> None:
    """Their rows don't count those of their answers, so each request goes the general way."""
    async with desk(batched=False) as fast, desk(restless=True, batched=False) as general:
        sent = [message(), message(rows=2), message(k=-1)]
        for _ in range(3):
            assert await fast.answers(sent) == await general.answers(sent)


def counts(at: Desk) -> dict[Outcome, int]:
    return {o: span.count for o, span in at.statistics.outcomes.items() if span.count}


# Any requests

_IDS = st.sampled_from(["", "", "a", "b7", "ü", "n" * 127, "n" * 128])
_NAMES = st.sampled_from(["m", "m", "m", "m", "other", ""])
_VERSIONS = st.sampled_from(["", "", "1", "9"])


@st.composite
def messages(draw: st.DrawFn) -> list[bytes]:
    """A few forms, each several times with other ids and data, right and wrong, then perhaps broken."""
    made: list[bytes] = []
    for form in draw(st.lists(forms(), min_size=1, max_size=3)):
        for _ in range(draw(st.integers(1, 4))):
            again = oip.ModelInferRequest()
            again.CopyFrom(form)
            again.id = draw(_IDS)
            for index, raw in enumerate(again.raw_input_contents):
                if raw and index < len(again.inputs) and again.inputs[index].datatype == "INT64":
                    k = draw(st.sampled_from([0, 1, 5, 300, -1]))
                    again.raw_input_contents[index] = (struct.pack("<q", k) * 99)[: len(raw)]
            made.append(draw(broken(again.SerializeToString())))
    return made


@st.composite
def forms(draw: st.DrawFn) -> oip.ModelInferRequest:
    rows = draw(st.sampled_from([1, 1, 2, 3, 0, 9]))
    made = oip.ModelInferRequest(model_name=draw(_NAMES), model_version=draw(_VERSIONS))
    dims = draw(st.sampled_from([[rows, 3], [rows, 3], [rows, 3], [rows, 2], [3], [-1, 3]]))
    tensors = {
        "x": ("FP32", dims, np.zeros(3 * rows, np.float32).tobytes()),
        "k": ("INT64", [rows], np.zeros(rows, np.int64).tobytes()),
    }
    for name in draw(st.permutations(["x", "k"])):
        datatype, shape, raw = tensors[name]
        if draw(st.integers(0, 19)) == 0:
            datatype = "FP64"
        made.inputs.add(name=name, datatype=datatype, shape=shape)
        if draw(st.integers(0, 19)) == 0:
            raw += b"\0"
        made.raw_input_contents.append(raw)
    for name in draw(st.sampled_from([(), (), ("y",), ("n", "y"), ("s",), ("y", "y"), ("q",)])):
        made.outputs.add(name=name)
    for key in draw(st.sampled_from([(), (), ("a",), ("a", "b"), ("timing",), ("timeout",)])):
        made.parameters[key].int64_param = 50_000_000
    if draw(st.integers(0, 9)) == 0:
        del made.raw_input_contents[:]
        made.inputs[0].contents.fp32_contents.extend([1.0] * 3 * rows)
    return made


@st.composite
def broken(draw: st.DrawFn, whole: bytes) -> bytes:
    """Mostly as it is; else with fields of its own in other places, or changed bytes."""
    how = draw(st.integers(0, 14))
    if how == 0:  # a second id, which counts
        return whole + b"\x1a\x01z"
    if how == 1:  # a field that nobody knows, before all
        return b"\xfa\x01\x01u" + whole
    if how == 2 and whole:
        place = draw(st.integers(0, len(whole) - 1))
        return whole[:place] + bytes([draw(st.integers(0, 255))]) + whole[place + 1 :]
    if how == 3:
        return whole[: draw(st.integers(0, len(whole)))]
    if how == 4:  # an empty id, written out, behind another
        return whole.replace(b"\x2a", b"\x1a\x00\x2a", 1)
    return whole


async def both(rounds: Sequence[Sequence[bytes]]) -> None:
    async with desk() as fast, desk(restless=True) as general:
        for sent in rounds:
            one, other = await fast.answers(sent), await general.answers(sent)
            assert list(map(without_times, one)) == list(map(without_times, other))
        assert counts(fast) == counts(general)
        assert fast.statistics.rows == general.statistics.rows


def without_times(end: object) -> object:
    """Times of a run are not the same twice; maps have no order in bytes."""
    if not isinstance(end, bytes):
        return end
    answer = oip.ModelInferResponse.FromString(end)
    for parameter in answer.parameters.values():
        parameter.int64_param = 0
    return answer


@settings(deadline=None, max_examples=120)
@given(messages())
def test_known_forms_change_nothing(sent: list[bytes]) -> None:
    """Any calls, right or wrong, end the same with and without what is remembered, and are counted the same."""
    asyncio.run(both([sent, sent]))
