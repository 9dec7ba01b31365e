"""What the edge's module finds in the first message of a call, for whole, cut, odd and broken ones."""

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from inference import open_inference_pb2 as oip

PROGRAM = Path(__file__).with_name("read_names.cc")
_FLAGS = ("-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader as a program, under sanitizers."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    made = tmp_path_factory.mktemp("native") / "read_names"
    command = [compiler, *_FLAGS, *_SANITIZERS, str(PROGRAM), "-o", str(made)]
    subprocess.run(command, check=True, timeout=110)
    return made


def read(program: Path, *bodies: list[bytes]) -> list[str]:
    """What is found in each body, given in pieces."""
    told = b"".join(
        struct.pack("<I", len(pieces))
        + b"".join(struct.pack("<I", len(piece)) + piece for piece in pieces)
        for pieces in bodies
    )
    ran = subprocess.run([program], input=told, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode().splitlines()


def framed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


def request(model_name: str = "", model_version: str = "") -> oip.ModelInferRequest:
    made = oip.ModelInferRequest(id="call", model_name=model_name, model_version=model_version)
    made.inputs.add(name="image", datatype="FP32", shape=[1, 64])
    made.raw_input_contents.append(bytes(256))
    made.parameters["priority"].int64_param = 3
    made.parameters["scale"].double_param = 0.5
    return made


CASES = {
    "endpoint alone": (framed(request(model_name="digits").SerializeToString()), "found digits@"),
    "endpoint and version": (
        framed(request(model_name="digits", model_version="2").SerializeToString()),
        "found digits@2",
    ),
    "names behind everything else": (
        framed(request().SerializeToString() + b"\x12\x012\x0a\x06digits"),
        "found digits@2",
    ),
    "the last of two names": (framed(b"\x0a\x03one\x0a\x03two"), "found two@"),
    "a version taken back": (framed(b"\x0a\x03one\x12\x012\x12\x00"), "found one@"),
    "a second message behind": (
        framed(b"\x0a\x03one") + framed(b"\x0a\x03two"),
        "found one@",
    ),
    "fields of unknown number and every wire type": (
        framed(
            b"\xf8\x07\xff\x01\xf9\x07"
            + bytes(8)
            + b"\xfa\x07\x02ab"
            + b"\xfd\x07abcd"
            + b"\x0a\x01x"
        ),
        "found x@",
    ),
    "no name": (framed(request().SerializeToString()), "unclear"),
    "an empty message": (framed(b""), "unclear"),
    "a name that is a number": (framed(b"\x08\x05"), "unclear"),
    "a name longer than any": (
        framed(request(model_name="x" * 257).SerializeToString()),
        "unclear",
    ),
    "a name with a space": (framed(request(model_name="a b").SerializeToString()), "unclear"),
    "a name beyond ASCII": (framed(request(model_name="é").SerializeToString()), "unclear"),
    "a compressed message": (framed(b"\x0a\x03one", flag=1), "unclear"),
    "a group": (framed(b"\x0a\x03one\x1b\x1c"), "unclear"),
    "a name that ends behind its message": (framed(b"\x0a\x7fone"), "unclear"),
    "a varint without end": (framed(b"\xff" * 12), "unclear"),
    "nothing": (b"", "more"),
    "half a prefix": (b"\0\0\0", "more"),
    "half a message": (framed(b"\x0a\x03one")[:-1], "more"),
    "a message of four gigabytes": (b"\0\xff\xff\xff\xff\x0a\x03one", "more"),
}


@pytest.mark.parametrize(("body", "found"), CASES.values(), ids=CASES.keys())
def test_reading(program: Path, body: bytes, found: str) -> None:
    """The same is found however the body is cut."""
    random.seed(1)
    cuts = [[body], [bytes([byte]) for byte in body], [b"", *_cut(body), b""]]
    assert read(program, *cuts) == [found] * 3


def test_broken_messages(program: Path) -> None:
    """Whatever bytes come, it stays within them, and finds nothing that protobuf would not."""
    draw = random.Random(2)
    bodies = []
    for number in range(3000):
        message = bytearray(request(model_name=f"m{number}", model_version="1").SerializeToString())
        for _ in range(draw.randint(0, 3)):
            message[draw.randrange(min(len(message), 60))] = draw.randrange(256)
        end = draw.randint(1, len(message)) if draw.random() < 0.3 else len(message)
        bodies.append(framed(bytes(message[:end])))
    told = read(program, *[_cut(body) for body in bodies])
    wrong = [
        (body, said)
        for body, said in zip(bodies, told, strict=True)
        if said.startswith("found") and said != f"found {_parsed(body)}"
    ]
    assert wrong == []
    assert sum(said.startswith("found") for said in told) > 300


def _cut(body: bytes) -> list[bytes]:
    places = sorted(random.choices(range(len(body) + 1), k=3))
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def _parsed(body: bytes) -> str:
    """As protobuf reads it, if it does; else by hand, since a message with a broken part may have readable names."""
    message = oip.ModelInferRequest()
    try:
        message.ParseFromString(body[5:])
    except DecodeError:
        return "{1}@{2}".format(*["", *_strings(body[5:])])
    return f"{message.model_name}@{message.model_version}"


def _strings(message: bytes) -> tuple[str, str]:
    """Fields 1 and 2, by the rules of protobuf's encoding; varints of messages like ours have one or two bytes."""
    found = {1: "", 2: ""}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        field, kind = divmod(varint(), 8)
        if kind == 2:
            size = varint()
            if field in found:
                found[field] = message[at : at + size].decode(errors="replace")
            at += size
        elif kind == 0:
            varint()
        else:
            at += {1: 8, 5: 4}[kind]
    return found[1], found[2]
