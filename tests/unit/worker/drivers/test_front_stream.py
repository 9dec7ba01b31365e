"""Calls of many messages on a front connection, with a real HTTP/2 client at the other end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import CancelledError, InferplaneError, NotFoundError
from services.worker.domain.grpc_message import SMALL
from services.worker.ports.call import MessageSink, StreamCall
from tests.unit.worker.drivers.test_front_connection import LIMIT, Line
from tests.unit.worker.front_client import Answer, Peer, framed

CHAT = b"/s/chat"


class Chat:
    """MessageSink that keeps what it is told; answers only when a test does."""

    def __init__(self, call: StreamCall) -> None:
        self.call = call
        self.messages: list[bytes] = []
        self.events: list[str] = []
        self.gone: list[InferplaneError] = []
        self.pauses = False  # after each message
        call.on_gone = self.gone.append

    def message(self, message: bytes) -> None:
        self.messages.append(message)
        if self.pauses or self.call.is_clogged:
            self.call.pause()

    def ended(self) -> None:
        self.events.append("ended")

    def drained(self) -> None:
        self.events.append("drained")
        self.call.resume()


class ChatLine(Line):
    """A line with a service of streams."""

    def __init__(self, peer: Peer | None = None, *, unsent: int = 4 * LIMIT) -> None:
        super().__init__(peer, unsent=unsent)
        self.chats: list[Chat] = []
        self.desk.streams = {CHAT: self._open}

    def _open(self, call: StreamCall) -> MessageSink:
        self.chats.append(Chat(call))
        return self.chats[-1]

    def open(self) -> tuple[int, Chat]:
        """A stream of the client and its other end."""
        stream = self.peer.request(CHAT, None)
        self.pump()
        return stream, self.chats[-1]

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Bytes of the client."""
        self.peer.session.send_data(stream, data, end_stream=end)
        self.pump()

    def answer(self, stream: int) -> Answer:
        """What the client has so far."""
        self.pump()
        return self.peer.answers[stream]


def test_messages_and_answers_alternate() -> None:
    """Each message is handed over as it comes, answers go out meanwhile, the end is the last thing said."""
    line = ChatLine()
    stream, chat = line.open()
    line.send(stream, framed(b"one"))
    chat.call.start()
    chat.call.write(b"1")
    assert line.answer(stream).data == framed(b"1")
    line.send(stream, framed(b"two") + framed(b"three"), end=True)
    assert chat.messages == [b"one", b"two", b"three"]
    assert chat.events == ["ended"]
    chat.call.write(b"2")
    chat.call.finish(((b"grpc-status", b"0"),))
    answer = line.answer(stream)
    assert (answer.data, answer.status, answer.closed) == (framed(b"1") + framed(b"2"), 0, 0)
    assert not chat.gone
    line.check_idle()


def test_a_stream_without_messages_ends() -> None:
    """Nothing but an end, in the headers themselves or after them."""
    line = ChatLine()
    line.peer.request(CHAT, b"")
    line.pump()
    stream, chat = line.open()
    line.send(stream, b"", end=True)
    assert [c.events for c in line.chats] == [["ended"], ["ended"]]
    assert not chat.messages


def test_a_status_before_the_end_of_the_request() -> None:
    """The caller has it, and is told that nothing more is wanted."""
    line = ChatLine()
    stream, chat = line.open()
    line.send(stream, framed(b"one"))
    chat.call.fail(NotFoundError("gone", reason="GONE"))
    answer = line.answer(stream)
    assert (answer.status, answer.reason) == (5, "GONE")
    assert answer.closed is not None
    line.check_idle()


def test_a_paused_stream_holds_its_caller_back_and_nobody_else() -> None:
    """Beyond one window nothing is taken, other calls go on, and nothing is lost once it is resumed."""
    line = ChatLine()
    line.desk.arriving.limit = 1 << 30
    stream, chat = line.open()
    chat.pauses = True
    messages = [bytes([n]) * (LIMIT // 2) for n in range(24)]  # 12 MiB
    line.send(stream, b"".join(framed(m) for m in messages), end=True)
    assert len(chat.messages) == 1
    waiting = line.peer.session.queued_body_size(stream)
    assert waiting > 6 * LIMIT
    echo = line.peer.request(b"/s/echo", framed(b"abc"))
    line.pump()
    assert line.peer.answers[echo].message == b"abc"
    while len(chat.messages) < len(messages):
        chat.call.resume()
        line.pump()
    chat.call.resume()
    assert chat.messages == messages
    assert chat.events == ["ended"]
    chat.call.finish(((b"grpc-status", b"0"),))
    line.pump()
    line.check_idle()


def test_what_a_paused_stream_holds_is_bounded_over_all_streams() -> None:
    """The budget of arriving messages counts: the stream that exceeds it is refused, the others stay."""
    line = ChatLine()  # room for 2 · LIMIT
    (first, one), (second, two) = line.open(), line.open()
    one.pauses = two.pauses = True
    line.send(first, framed(b"x" * SMALL) * 20)
    line.send(second, framed(b"x" * SMALL) * 20)
    assert line.peer.answers[second].reason == "TOO_MANY_BYTES_ARRIVE"
    assert [e.reason for e in two.gone] == ["TOO_MANY_BYTES_ARRIVE"]
    one.pauses = False
    one.call.resume()
    assert len(one.messages) == 20
    assert line.desk.arriving.used == 0


def test_a_caller_that_does_not_read_is_noticed() -> None:
    """`is_clogged` turns true; once the caller reads, the sink is told, and reading goes on."""
    line = ChatLine(Peer(auto=False), unsent=64 * LIMIT)
    stream, chat = line.open()
    chat.call.start()
    while not chat.call.is_clogged:
        chat.call.write(b"x" * (LIMIT // 2))
        line.pump()
    line.send(stream, framed(b"one") + framed(b"two"))
    assert chat.messages == [b"one"]
    assert not chat.events
    taken = 0
    while "drained" not in chat.events:
        fresh = len(line.peer.answers[stream].data) - taken
        assert fresh
        taken += fresh
        line.peer.session.acknowledge_received_data(fresh, stream)
        line.pump()
    assert chat.messages == [b"one", b"two"]


def test_a_cancel_is_told_once() -> None:
    """Whatever was held is given back."""
    line = ChatLine()
    stream, chat = line.open()
    line.send(stream, framed(b"x" * LIMIT)[:-1])
    assert line.desk.arriving.used > LIMIT // 2
    line.peer.session.reset_stream(stream)
    line.pump()
    assert [type(e) for e in chat.gone] == [CancelledError]
    chat.call.write(b"nobody")
    chat.call.resume()
    line.check_idle()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\1\0\0\0\1x", "COMPRESSION_UNSUPPORTED", id="compressed"),
        pytest.param(b"\0\x7f\xff\xff\xff", "MESSAGE_TOO_LARGE", id="too-large"),
        pytest.param(framed(b"abc")[:-1], "MALFORMED_MESSAGE", id="cut-off"),
    ],
)
def test_what_is_no_message_ends_the_stream(data: bytes, reason: str) -> None:
    """Messages before it were handed over; both sides are told why."""
    line = ChatLine()
    stream, chat = line.open()
    line.send(stream, framed(b"one") + data, end=True)
    assert chat.messages == [b"one"]
    assert line.peer.answers[stream].reason == reason
    assert [e.reason for e in chat.gone] == [reason]
    line.check_idle()


def test_a_deadline_ends_a_stream() -> None:
    """As with other calls."""
    line = ChatLine()
    stream = line.peer.request(CHAT, None, (b"grpc-timeout", b"1n"))
    line.pump()
    (chat,) = line.chats
    assert chat.call.deadline is not None
    line.connection.expire(chat.call.deadline + 1)
    assert line.answer(stream).status == 4
    assert len(chat.gone) == 1


def test_answers_beyond_the_bound_end_the_stream_for_both_sides() -> None:
    """A connection holds so many unread bytes; who reads at last has what was written, and why it ended."""
    line = ChatLine(Peer(auto=False), unsent=2 * LIMIT)
    stream, chat = line.open()
    chat.call.start()
    for _ in range(20):
        chat.call.write(b"x" * LIMIT)
        line.pump()
    assert [e.reason for e in chat.gone] == ["ANSWERS_NOT_READ"]
    assert not line.connection.calls
    answer, taken = line.peer.answers[stream], 0
    assert answer.closed is None
    while answer.closed is None:
        fresh = len(answer.data) - taken
        assert fresh
        taken += fresh
        line.peer.session.acknowledge_received_data(fresh, stream)
        line.pump()
    assert len(answer.data) % (LIMIT + 5) == 0
    assert answer.reason == "ANSWERS_NOT_READ"


STEPS = st.tuples(
    st.sampled_from(["data", "pause", "resume", "answer"]),
    st.binary(max_size=30) | st.binary(max_size=30).map(framed),
)


@given(st.lists(STEPS, max_size=20), st.booleans())
def test_any_bytes_on_a_stream(steps: list[tuple[str, bytes]], ends: bool) -> None:
    """Whatever comes and however the method behaves: a status or none, one end, and nothing is left."""
    line = ChatLine()
    stream, chat = line.open()
    for what, data in steps:
        if line.peer.answers[stream].closed is not None:
            break
        if what == "data":
            line.send(stream, data)
        elif what == "pause":
            chat.call.pause()
        elif what == "resume":
            chat.call.resume()
        else:
            chat.call.start()
            chat.call.write(data)
        line.pump()
    if ends and line.peer.answers[stream].closed is None:
        line.send(stream, b"", end=True)
    chat.call.resume()
    chat.call.finish(((b"grpc-status", b"0"),))
    line.pump()
    assert line.peer.answers[stream].status >= 0
    assert line.peer.answers[stream].closed is not None
    assert len(chat.events) + len(chat.gone) <= 1
    line.check_idle()
