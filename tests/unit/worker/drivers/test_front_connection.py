"""One connection of the front with a real HTTP/2 client at its other end, and without sockets."""

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rpc.errors import DeadlineExceededError, InferplaneError, NotFoundError
from services.worker.adapters import grpc_status
from services.worker.adapters.http2_codec import Ngh2Codec
from services.worker.domain.grpc_message import ByteBudget
from services.worker.drivers.front_connection import FrontConnection, FrontDesk
from services.worker.ports.call import Call
from tests.unit.worker.front_client import Answer, Peer, PipeTransport, framed

LIMIT = 1 << 20


class Service:
    """`/s/echo` answers at once, `/s/hold` when told, `/s/fail` with an error."""

    def __init__(self) -> None:
        self.held: list[Call] = []
        self.gone: list[InferplaneError] = []
        self.begun = 0

    def echo(self, call: Call, message: bytes) -> None:
        self.begun += 1
        call.reply(message, ((b"x-initial", b"1"),), ((b"x-trailing", b"2"),))

    def hold(self, call: Call, message: bytes) -> None:
        self.begun += 1
        self.held.append(call)
        call.on_gone = self.gone.append

    def fail(self, call: Call, message: bytes) -> None:
        call.fail(NotFoundError("no – 100 % not", reason="NOT_HERE"))


class Line:
    """A connection between a client and the front."""

    def __init__(self, peer: Peer | None = None, *, unsent: int = 4 * LIMIT) -> None:
        self.service = Service()
        self.dirty: list[FrontConnection] = []
        self.desk = FrontDesk(
            methods={
                b"/s/echo": self.service.echo,
                b"/s/hold": self.service.hold,
                b"/s/fail": self.service.fail,
            },
            make_codec=Ngh2Codec,
            status_of=grpc_status.trailers_of,
            max_message_bytes=LIMIT,
            arriving=ByteBudget(2 * LIMIT),
            max_unsent_bytes=unsent,
            users=frozenset(),
            admits=lambda _: False,
            deadlines_set=lambda: None,
            touched=self.dirty.append,
        )
        self.transport = PipeTransport()
        self.connection = FrontConnection(self.desk)
        self.connection.connection_made(self.transport)
        self.peer = peer or Peer()
        self.pump()

    def pump(self) -> None:
        """Carry bytes both ways until nothing moves."""
        while True:
            out = self.peer.session.data_to_send()
            if out:
                self.connection.data_received(out)
            for connection in self.dirty:
                connection.flush()
            self.dirty.clear()
            back = self.transport.take()
            if back:
                self.peer.take(back)
            if not (out or back):
                return

    def check_idle(self) -> None:
        """Nothing is left of any call."""
        assert not self.connection.calls
        assert self.desk.arriving.used == 0


def test_a_call_is_answered_with_metadata_on_both_sides() -> None:
    """Headers, one message, trailers, and the stream is closed."""
    line = Line()
    stream = line.peer.request(b"/s/echo", framed(b"abc"))
    line.pump()
    answer = line.peer.answers[stream]
    assert (answer.status, answer.message, answer.closed) == (0, b"abc", 0)
    assert answer.headers[b"x-initial"] == b"1"
    assert answer.headers[b"x-trailing"] == b"2"
    assert answer.headers[b"content-type"] == b"application/grpc"
    line.check_idle()


def test_answers_of_many_calls_leave_in_one_write() -> None:
    """32 calls in one read are 32 answers in one write."""
    line = Line()
    streams = [line.peer.request(b"/s/echo", framed(b"%d" % n)) for n in range(32)]
    line.connection.data_received(line.peer.session.data_to_send())
    assert len(line.transport.written) == 1
    line.peer.take(line.transport.take())
    assert [line.peer.answers[s].message for s in streams] == [b"%d" % n for n in range(32)]


def test_an_error_has_code_text_and_details() -> None:
    """Text that is not ASCII survives, and so does the reason."""
    line = Line()
    stream = line.peer.request(b"/s/fail", framed(b""))
    line.pump()
    answer = line.peer.answers[stream]
    assert (answer.status, answer.text, answer.reason) == (5, "no – 100 % not", "NOT_HERE")
    line.check_idle()


@pytest.mark.parametrize("size", [0, 1, 4, 5, 6, 70_000, LIMIT, LIMIT + 65_536])
def test_messages_of_all_sizes_come_back(size: int) -> None:
    """Through windows on both sides."""
    line = Line()
    stream = line.peer.request(b"/s/echo", framed(b"x" * size))
    line.pump()
    answer = line.peer.answers[stream]
    assert (answer.status, len(answer.message), answer.closed) == (0, size, 0)
    line.check_idle()


def test_a_message_beyond_the_limit_is_refused_by_its_prefix() -> None:
    """The limit is named, the rest is not read, other calls go on."""
    line = Line()
    stream = line.peer.request(b"/s/echo", None)
    line.peer.session.send_data(stream, b"\0" + (LIMIT + 65_537).to_bytes(4, "big") + b"x")
    line.pump()
    answer = line.peer.answers[stream]
    assert answer.status == 8
    assert str(LIMIT) in answer.text
    assert answer.closed == 0
    other = line.peer.request(b"/s/echo", framed(b"y"))
    line.pump()
    assert line.peer.answers[other].status == 0
    line.check_idle()


@pytest.mark.parametrize(
    ("path", "body", "more", "status"),
    [
        (b"/s/none", framed(b""), (), 12),
        (b"", framed(b""), (), 12),
        (b"/s/echo", b"\1\0\0\0\0", (), 12),
        (b"/s/echo", framed(b""), ((b"grpc-encoding", b"gzip"),), 12),
        (b"/s/echo", framed(b"") + b"x", (), 3),
        (b"/s/echo", b"\0\0\0\0\2x", (), 3),
        (b"/s/echo", b"\0\0", (), 3),
        (b"/s/echo", b"", (), 3),
        (b"/s/echo", framed(b""), ((b"grpc-timeout", b"soon"),), 3),
    ],
)
def test_bad_calls_have_a_status_and_harm_nobody(
    path: bytes, body: bytes, more: tuple[tuple[bytes, bytes], ...], status: int
) -> None:
    """Each ends for itself; a call beside it is answered."""
    line = Line()
    beside = line.peer.request(b"/s/hold", framed(b""))
    stream = line.peer.request(path or b"/", body, *more)
    line.pump()
    assert line.peer.answers[stream].status == status
    line.service.held[0].reply(b"ok")
    line.pump()
    assert line.peer.answers[beside].message == b"ok"
    line.check_idle()


def test_a_streaming_caller_of_an_unknown_method_is_told_at_once() -> None:
    """It need not end its requests first."""
    line = Line()
    stream = line.peer.request(b"/grpc.reflection.v1.ServerReflection/Info", None)
    line.pump()
    assert line.peer.answers[stream].status == 12
    line.check_idle()


def test_what_is_no_grpc_is_answered_in_http() -> None:
    """415 for another content type."""
    line = Line()
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/s/echo"),
        (b":authority", b"a"),
        (b"content-type", b"application/json"),
    ]
    stream = line.peer.session.send_request(headers, end_stream=True)
    line.peer.answers[stream] = Answer()
    line.pump()
    assert line.peer.answers[stream].headers[b":status"] == b"415"
    line.check_idle()


def test_a_cancel_reaches_the_method_once() -> None:
    """And a late answer goes nowhere."""
    line = Line()
    stream = line.peer.request(b"/s/hold", framed(b""))
    line.pump()
    line.peer.session.reset_stream(stream, 8)
    line.pump()
    assert [e.kind.name for e in line.service.gone] == ["CANCELLED"]
    line.service.held[0].reply(b"late")
    line.service.held[0].fail(NotFoundError("later"))
    line.pump()
    assert line.peer.answers[stream].data == b""
    line.check_idle()


def test_a_deadline_that_the_caller_does_not_enforce() -> None:
    """DEADLINE_EXCEEDED is sent, the method is told."""
    line = Line()
    stream = line.peer.request(b"/s/hold", framed(b""), (b"grpc-timeout", b"1S"))
    line.pump()
    (call,) = line.service.held
    assert call.deadline is not None
    line.connection.expire(call.deadline - 0.5)
    assert not line.service.gone
    line.connection.expire(call.deadline)
    line.pump()
    assert line.peer.answers[stream].status == 4
    assert isinstance(line.service.gone[0], DeadlineExceededError)
    line.check_idle()


def test_a_lost_connection_ends_its_calls() -> None:
    """All of them are told, and large messages that were on their way are forgotten."""
    line = Line()
    for _ in range(3):
        line.peer.request(b"/s/hold", framed(b""))
    half = line.peer.request(b"/s/echo", None)
    line.peer.session.send_data(half, framed(b"x" * LIMIT)[:-1])
    line.pump()
    assert line.desk.arriving.used == LIMIT
    line.connection.connection_lost(None)
    assert len(line.service.gone) == 3
    line.check_idle()


def test_three_thousand_resets_leave_others_alive() -> None:
    """The codec's guard against rapid resets, meant for strangers, does not end Envoy's connection."""
    line = Line()
    beside = line.peer.request(b"/s/hold", framed(b""))
    for _ in range(3000):
        stream = line.peer.request(b"/s/hold", framed(b""))
        line.pump()
        line.peer.session.reset_stream(stream, 8)
        line.pump()
    line.service.held[0].reply(b"alive")
    line.pump()
    assert line.peer.answers[beside].message == b"alive"
    assert len(line.service.gone) == 3000
    assert line.peer.goaway is None
    line.check_idle()


def test_answers_that_nobody_reads_are_bounded() -> None:
    """Beyond the bound they become RESOURCE_EXHAUSTED; what fits is still delivered once the peer reads."""
    line = Line(Peer(auto=False), unsent=3 * LIMIT)
    streams = [line.peer.request(b"/s/hold", framed(b"")) for _ in range(5)]
    line.pump()
    for call in line.service.held:
        call.reply(b"x" * LIMIT)
    line.pump()
    statuses = [line.peer.answers[s].status for s in streams]
    assert statuses.count(8) >= 2
    assert line.connection.codec.unsent() <= 3 * LIMIT
    for stream in streams:
        if line.peer.answers[stream].status == -1:
            line.peer.session.reset_stream(stream, 8)
    line.pump()
    assert line.connection.codec.unsent() == 0
    line.check_idle()


def test_a_full_socket_holds_back_what_is_written() -> None:
    """Nothing is written while it is full, all of it afterwards."""
    line = Line()
    stream = line.peer.request(b"/s/hold", framed(b""))
    line.pump()
    line.connection.pause_writing()
    line.service.held[0].reply(b"x")
    line.pump()
    assert line.peer.answers[stream].status == -1
    line.connection.resume_writing()
    line.pump()
    assert line.peer.answers[stream].status == 0


def test_after_goaway_what_runs_is_finished_and_nothing_begins() -> None:
    """Then the connection closes by itself."""
    line = Line()
    stream = line.peer.request(b"/s/hold", framed(b""))
    line.pump()
    line.connection.goaway()
    line.peer.take(line.transport.take())
    assert line.peer.goaway == 0
    line.service.held[0].reply(b"x")
    line.pump()
    assert line.peer.answers[stream].message == b"x"
    assert line.transport.closed


def fuzzed(line: Line, feed: Callable[[], None]) -> None:
    """Whatever came, nothing escapes, and nothing is left once the connection has gone."""
    feed()
    for connection in line.dirty:
        connection.flush()
    line.connection.connection_lost(None)
    line.check_idle()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=6))
def test_any_bytes_on_a_connection(pieces: list[bytes]) -> None:
    """Random bytes after a valid beginning, then others: no exception, no leak."""
    line = Line()

    def feed() -> None:
        for piece in pieces:
            if line.transport.closed:
                return
            line.connection.data_received(piece)

    fuzzed(line, feed)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.builds(
            frame,
            st.integers(0, 12),
            st.sampled_from([0, 1, 4, 5, 8, 0x20, 0xFF]),
            st.integers(0, 9),
            st.binary(max_size=60),
        ),
        max_size=12,
    )
)
def test_any_frames_on_a_connection(frames: list[bytes]) -> None:
    """Well-formed frames without sense, beside calls that run."""
    line = Line()
    line.peer.request(b"/s/hold", framed(b""))
    half = line.peer.request(b"/s/echo", None)
    line.peer.session.send_data(half, framed(b"x" * 100_000)[:-1])
    line.pump()

    def feed() -> None:
        for each in frames:
            if line.transport.closed:
                return
            line.connection.data_received(each)

    fuzzed(line, feed)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_good_conversation_with_bytes_changed(seed: int) -> None:
    """One byte in fifty is another one."""
    numbers = random.Random(seed)
    line, peer = Line(), Peer()
    for _ in range(5):
        peer.request(numbers.choice([b"/s/echo", b"/s/hold"]), framed(b"abc"))
    data = bytearray(peer.session.data_to_send())
    for index in range(len(data)):
        if numbers.random() < 0.02:
            data[index] = numbers.randrange(256)
    other = FrontConnection(line.desk)
    other.connection_made(PipeTransport())
    other.data_received(bytes(data))
    other.connection_lost(None)
    assert not other.calls
    line.check_idle()


def test_a_caller_that_does_not_read_many_answers_is_noticed() -> None:
    """`is_clogged` turns true; once the caller reads, the call is told, once."""
    line = Line(Peer(auto=False), unsent=64 * LIMIT)
    stream = line.peer.request(b"/s/hold", framed(b""))
    line.pump()
    (call,) = line.service.held
    drained: list[bool] = []
    call.start()
    while not call.is_clogged:
        call.write(b"x" * (LIMIT // 2))
        line.pump()
    call.on_drained = lambda: drained.append(True)
    taken = 0
    while not drained:
        fresh = len(line.peer.answers[stream].data) - taken
        assert fresh
        taken += fresh
        line.peer.session.acknowledge_received_data(fresh, stream)
        line.pump()
    assert not call.is_clogged
    assert drained == [True]
    line.peer.session.reset_stream(stream)
    line.pump()
    assert call.is_over
    assert not line.connection.clogged
