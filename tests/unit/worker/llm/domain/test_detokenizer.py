"""Text from tokens' bytes, wherever they are cut."""

from hypothesis import example, given
from hypothesis import strategies as st

from services.worker.llm.domain.detokenizer import Detokenizer

# Bytes that begin, continue and break characters of every length come up often.
_BYTES = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.lists(
        st.sampled_from([b"a", b"\xc3", b"\xe2", b"\x82", b"\xac", b"\xf0", b"\x9f", b"\xff"])
    ).map(b"".join),
)


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(_BYTES, st.lists(st.integers(0, 40), max_size=10))
@example("é€😀".encode(), [1, 2, 3, 4, 5, 6, 7, 8])
def test_all_pieces_together_are_the_whole_decoded_at_once(data: bytes, places: list[int]) -> None:
    """However the bytes are cut, nothing is lost or added, and invalid ones are U+FFFD as for the whole."""
    characters = Detokenizer()
    pieces = [characters.feed(token) for token in _cut(data, places)]
    assert "".join(pieces) + characters.flush() == data.decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_a_character_comes_with_its_last_byte(text: str) -> None:
    """Valid text fed byte by byte comes in whole characters, as early as can be, and leaves no tail."""
    characters = Detokenizer()
    for character in text:
        *first, last = character.encode()
        assert [characters.feed(bytes([byte])) for byte in first] == [""] * len(first)
        assert characters.feed(bytes([last])) == character
    assert characters.flush() == ""


def test_half_a_character_at_the_end_is_told() -> None:
    """A text that ends within a character ends with U+FFFD."""
    characters = Detokenizer()
    assert characters.feed(b"a\xe2\x82") == "a"
    assert characters.flush() == "�"
