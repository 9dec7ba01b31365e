"""The limits of the edge's module: what is let in when, for how long, and what the refused are told."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

PROGRAM = Path(__file__).with_name("try_limits.cc")
_FLAGS = ("-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-pthread")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_SECOND = 1_000_000_000
_START = 5_000 * _SECOND  # of a clock that has run for a while

KEY, PROJECT = "projects/p/keys/k", "projects/p"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The limits as a program, under sanitizers."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    made = tmp_path_factory.mktemp("native") / "try_limits"
    command = [compiler, *_FLAGS, *_SANITIZERS, str(PROGRAM), "-o", str(made)]
    subprocess.run(command, check=True, timeout=110)
    return made


def play(program: Path, *lines: str) -> list[str]:
    ran = subprocess.run(
        [program], input="\n".join(lines), capture_output=True, check=False, timeout=60, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def admit(at: float, name: str = "r", key: str = KEY, project: str = PROJECT) -> str:
    return f"admit {name} {key} {project} {_START + round(at * _SECOND)}"


def test_requests_over_time(program: Path) -> None:
    """2 a second and 3 at once: three come, the fourth half a second later."""
    told = play(program, f"table {KEY} 2 3 0 0", *[admit(at) for at in (0, 0, 0, 0, 0.49, 0.5, 9)])
    assert [line.split()[0] for line in told[1:4]] == ["admitted"] * 3
    assert told[3] == "admitted 0/3 1.5s"
    assert told[4].startswith(f"refused {KEY} may have 2 requests a second, which are used up")
    assert told[5].startswith("refused")
    assert told[6] == "admitted 0/3 1.5s"
    assert told[7] == "admitted 2/3 500ms"


def test_the_refused_are_told_what_a_program_reads(program: Path) -> None:
    """Reason, subject, limit, and when to try again, as every other error of ours has them."""
    told = play(program, f"table {KEY} 0.5 1 0 0", admit(0), admit(0.25))
    text, after, details = told[2].removeprefix("refused ").split("|")
    assert after == "2"
    status = status_pb2.Status.FromString(base64.b64decode(details + "=" * (-len(details) % 4)))
    assert (status.code, status.message) == (8, text)
    info, delay = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(delay)
    assert (info.reason, info.domain) == ("REQUESTS_PER_SECOND", "inferplane")
    assert dict(info.metadata) == {"subject": KEY, "limit": "0.5"}
    assert delay.retry_delay.ToNanoseconds() == 1.75 * _SECOND


def test_requests_in_flight(program: Path) -> None:
    """Two run, the third is refused until one of them has ended."""
    told = play(
        program,
        f"table {PROJECT} 0 0 2 0",
        *[admit(0, name) for name in "abc"],
        "end a",
        admit(0, "c"),
        f"running {PROJECT}",
    )
    assert told[1:3] == ["admitted", "admitted"]
    assert told[3].startswith(f"refused {PROJECT} may have 2 requests in flight, and has")
    assert told[5:] == ["admitted", "2"]


def test_who_is_refused_by_one_has_taken_nothing_of_the_other(program: Path) -> None:
    """The project has nothing left: the key's own limits are as they were."""
    told = play(
        program,
        f"table {KEY} 1 5 5 0;{PROJECT} 1 1 0 0",
        admit(0, "a"),
        admit(0, "b"),
        f"running {KEY}",
        f"table {KEY} 1 5 5 0",
        admit(0, "c"),
    )
    assert told[2].startswith(f"refused {PROJECT} ")
    assert told[3] == "1"
    assert told[5] == "admitted 3/5 2.0s"


def test_shadow_mode_refuses_nothing(program: Path) -> None:
    """What would have been refused is told, and runs."""
    told = play(program, f"table {KEY} 1 1 1 1", admit(0, "a"), admit(0, "b"), f"running {KEY}")
    assert told[1:] == ["admitted", "admitted over-rate", "2"]


def test_what_is_used_outlives_a_change_of_the_limits(program: Path) -> None:
    """A new table knows what was used and what runs; wider limits hold at once."""
    told = play(
        program,
        f"table {KEY} 0.001 1 2 0",
        admit(0, "a"),
        admit(0, "b"),
        f"table {KEY} 0.001 1 1 0",
        admit(1, "b"),
        f"table {KEY} 1000 10 2 0",
        admit(1.001, "c"),
        f"running {KEY}",
    )
    assert told[2].startswith("refused")
    assert "in flight" in told[4]
    assert told[6].startswith("admitted")
    assert told[7] == "2"


def test_meters_go_with_the_last_who_needs_them(program: Path) -> None:
    """Subjects without limits leave nothing behind, once their requests have ended."""
    told = play(
        program,
        f"table {KEY} 0 0 2 0;{PROJECT} 0 0 2 0",
        "meters",
        admit(0, "a", KEY, "projects/other"),
        "table -",
        "meters",
        "end a",
        "table -",
        "meters",
    )
    assert (told[1], told[4], told[7]) == ("2", "1", "0")


@pytest.mark.parametrize(
    "line",
    ["name", "name x 1 1 0", "name 1 1 1", "name 1 -1 1 0", "name inf 1 1 0", "name 1 1 1 0 0"],
)
def test_what_is_no_limit_is_refused(program: Path, line: str) -> None:
    """A configuration that can't be read leaves the one before in force."""
    assert play(program, f"table {line}") == ["refused"]


def test_many_threads_get_no_more_than_one_would(program: Path) -> None:
    """8 threads ask 4,000 times at one moment: exactly the burst is let in, and nothing is held afterwards."""
    told = play(program, f"table {KEY} 10 777 0 0", f"storm 8 500 {KEY}", f"running {KEY}")
    assert told[1:] == ["777", "0"]


@given(
    rate=st.sampled_from([0.3, 1, 7, 100, 1e6]),
    burst=st.integers(1, 20),
    gaps=st.lists(st.integers(0, 400), min_size=1, max_size=60),
)
def test_never_more_than_burst_and_rate(
    program: Path, rate: float, burst: int, gaps: list[int]
) -> None:
    """In any span of time at most the burst and what the rate gives for it gets in; who waits as told gets in."""
    moments = [sum(gaps[: i + 1]) / 100 for i in range(len(gaps))]
    told = play(program, f"table {KEY} {rate} {burst} 0 0", *[admit(at) for at in moments])
    admitted = [
        at for at, line in zip(moments, told[1:], strict=True) if line.startswith("admitted")
    ]
    assert admitted
    for i, begin in enumerate(admitted):
        for k in range(i, len(admitted)):
            assert k - i + 1 <= burst + rate * (admitted[k] - begin) + 1e-6
