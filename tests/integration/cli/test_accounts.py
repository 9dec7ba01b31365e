"""The commands on projects, keys, limits, prices and the ledger, against the real metering and edge."""

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.integration.cli.running_mesh import Done, RunningMesh, run_inside, running_mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """A mesh without workers, at which callers need a key; each test uses a project of its own."""
    with running_mesh(tmp_path_factory.mktemp("state"), "--workers", "0") as running:
        yield running


def _ok(mesh: RunningMesh, *arguments: str) -> Any:
    """Run a command with JSON output; its result."""
    done = mesh.cli_inside(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def _refused(mesh: RunningMesh, code: int, *arguments: str) -> dict[str, Any]:
    """Run a command that must fail with this exit code; its error."""
    done = mesh.cli_inside(*arguments, "-o", "json")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    error: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
    return error


def _with_key(mesh: RunningMesh, token: str, *arguments: str) -> Done:
    """A command of somebody else, who has this key and no state directory."""
    return run_inside(
        *arguments, "-o", "json", INFERPLANE_ADDRESS=mesh.address, INFERPLANE_API_KEY=token
    )


def _until(mesh: RunningMesh, token: str, code: int) -> Done:
    """Ask with a key until that ends with this code: what the edge is told reaches it within a second."""
    deadline = datetime.now(UTC) + timedelta(seconds=60)
    while True:
        done = _with_key(mesh, token, "endpoints", "list")
        if done.returncode == code or datetime.now(UTC) > deadline:
            return done


def test_up_makes_the_first_key(mesh: RunningMesh) -> None:
    """In a file of this user alone; `up` tells how to use it and shows it nowhere, nor do the logs."""
    file = mesh.state.admin_key
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert any(f"export INFERPLANE_API_KEY=$(cat {file})" in line for line in mesh.lines)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["role"], claims["endpoints"], claims["project"]) == ("admin", ["*"], "default")
    logged = "".join(path.read_text() for path in mesh.state.logs.iterdir())
    assert token not in logged + "\n".join(mesh.lines)


def test_without_a_key_nothing_is_told(mesh: RunningMesh) -> None:
    """Exit code 5, and how a key is said; a token that is none is refused by the edge, with whose it was."""
    done = run_inside("endpoints", "list", INFERPLANE_ADDRESS=mesh.address)
    assert (done.returncode, done.stdout) == (5, "")
    assert "No API key was sent. Try: --api-key or INFERPLANE_API_KEY" in done.stderr
    false = _with_key(mesh, "e30.e30.e30", "endpoints", "list")
    assert false.returncode == 5
    assert "INFERPLANE_API_KEY" in false.stderr
    assert "e30" not in false.stderr


def test_projects(mesh: RunningMesh) -> None:
    """Made, listed, changed, told when they are there already or not at all."""
    made = _ok(mesh, "projects", "create", "atlas", "--name", "Atlas", "--tag", "team=maps")
    assert (made["name"], made["display_name"], made["tags"]) == (
        "projects/atlas",
        "Atlas",
        {"team": "maps"},
    )
    assert {"projects/atlas", "projects/default"} <= {
        project["name"] for project in _ok(mesh, "projects", "list")
    }
    changed = _ok(mesh, "projects", "update", "atlas", "--name", "Maps", "--disable")
    assert (changed["display_name"], changed["disabled"], changed["tags"]) == (
        "Maps",
        True,
        {"team": "maps"},
    )
    assert not _ok(mesh, "projects", "update", "atlas", "--enable")["disabled"]
    assert _ok(mesh, "projects", "get", "projects/atlas")["display_name"] == "Maps"
    assert _refused(mesh, 5, "projects", "create", "atlas")["status"] == "ALREADY_EXISTS"
    assert _refused(mesh, 3, "projects", "get", "nobody")["status"] == "NOT_FOUND"
    assert _refused(mesh, 2, "projects", "update", "atlas")["reason"] == "USAGE"
    shown = mesh.cli_inside("projects", "list").stdout
    assert shown.splitlines()[0].split() == [
        "PROJECT",
        "NAME",
        "STATE",
        "LIMITS",
        "TAGS",
        "CREATED",
    ]


def test_a_token_is_shown_once(mesh: RunningMesh, tmp_path: Path) -> None:
    """As JSON, as a line of its own, or with `--quiet` alone; no other command knows it."""
    _ok(mesh, "projects", "create", "once")
    made = _ok(mesh, "keys", "create", "--project", "once", "--label", "l", "--lifetime", "2h")
    claims = jwt.decode(made["token"], options={"verify_signature": False})
    name = made["api_key"]["name"]
    assert name == f"projects/once/keys/{claims['jti']}" == claims["sub"]
    assert claims["exp"] - claims["iat"] == 7200
    quiet = mesh.cli_inside("keys", "create", "--project", "once", "--quiet")
    assert quiet.stdout.count("\n") == 1
    assert quiet.stderr == ""
    plain = mesh.cli_inside("keys", "create", "--project", "once", "-e", "digits", "-e", "minilm")
    assert plain.stdout.splitlines()[-1].startswith("token  ey")
    assert "shown this once" in plain.stderr
    listed = mesh.cli_inside("keys", "list", "--project", "once")
    assert len(listed.stdout.splitlines()) == 4
    assert "ey" + "J" not in listed.stdout + json.dumps(_ok(mesh, "keys", "list"))
    assert [key["endpoints"] for key in _ok(mesh, "keys", "list", "--project", "once")] == [
        ["*"],
        ["*"],
        ["digits", "minilm"],
    ]


def test_roles(mesh: RunningMesh) -> None:
    """A viewer reads and changes nothing; a caller does neither; both are told which key it was."""
    viewer = mesh.cli_inside("keys", "create", "--role", "viewer", "-q").stdout.strip()
    caller = mesh.cli_inside("keys", "create", "-q").stdout.strip()
    assert _with_key(mesh, viewer, "endpoints", "list").returncode == 0
    refused = _with_key(mesh, viewer, "projects", "create", "mine")
    assert refused.returncode == 5
    error = json.loads(refused.stderr)["error"]
    assert error["status"] == "PERMISSION_DENIED"
    assert (
        "The API key that was sent is that of --api-key or INFERPLANE_API_KEY" in error["message"]
    )
    assert _with_key(mesh, caller, "endpoints", "list").returncode == 5


def test_what_is_said_of_a_key(mesh: RunningMesh) -> None:
    """Label and tags change, each alone; rights don't, and nothing to change is an error of usage."""
    made = _ok(mesh, "keys", "create", "--label", "old", "--tag", "team=a")["api_key"]
    relabelled = _ok(mesh, "keys", "update", made["name"], "--label", "new")
    assert (relabelled["label"], relabelled["tags"]) == ("new", {"team": "a"})
    tagged = _ok(mesh, "keys", "update", made["name"], "--tag", "stage=test")
    assert (tagged["label"], tagged["tags"]) == ("new", {"stage": "test"})
    assert _ok(mesh, "keys", "get", made["name"]) == tagged
    assert (tagged["role"], tagged["endpoints"]) == (made["role"], made["endpoints"])
    assert _refused(mesh, 2, "keys", "update", made["name"])["reason"] == "USAGE"
    assert _refused(mesh, 3, "keys", "get", "default/nobody")["status"] == "NOT_FOUND"


def test_rotating_and_revoking(mesh: RunningMesh) -> None:
    """Both are let in while they overlap, then the new one alone; what is revoked is let in no more.

    1. A key is rotated with an overlap: the old one and its successor are let in.
    2. The successor is rotated without: it ends at once, as the list says.
    3. The last one is revoked: refused; revoking it again is harmless, rotating it is not possible.
    """
    first = _ok(mesh, "keys", "create", "--role", "viewer", "--label", "rotated")
    name = first["api_key"]["name"]
    second = _ok(mesh, "keys", "rotate", name, "--overlap", "1h")
    assert [second["api_key"][field] for field in ("role", "label")] == ["ROLE_VIEWER", "rotated"]
    for token in (first["token"], second["token"]):
        assert _with_key(mesh, token, "endpoints", "list").returncode == 0
    third = _ok(mesh, "keys", "rotate", second["api_key"]["name"], "--overlap", "0")
    assert _until(mesh, second["token"], 5).returncode == 5
    assert _with_key(mesh, third["token"], "endpoints", "list").returncode == 0
    last = third["api_key"]["name"].removeprefix("projects/").replace("/keys/", "/")
    assert _ok(mesh, "keys", "revoke", last)["revoke_time"]
    assert "revoked" in _until(mesh, third["token"], 5).stderr
    _ok(mesh, "keys", "revoke", last)
    assert _refused(mesh, 5, "keys", "rotate", last)["status"] == "FAILED_PRECONDITION"
    good = {key["name"] for key in _ok(mesh, "keys", "list")}
    every = {key["name"] for key in _ok(mesh, "keys", "list", "--all")}
    assert name in good
    assert {second["api_key"]["name"], third["api_key"]["name"]} <= every - good


def test_a_disabled_project_lets_nobody_in(mesh: RunningMesh) -> None:
    """None of its keys, until it is enabled again."""
    _ok(mesh, "projects", "create", "asleep")
    created = mesh.cli_inside("keys", "create", "--project", "asleep", "--role", "viewer", "-q")
    token = created.stdout.strip()
    assert _with_key(mesh, token, "endpoints", "list").returncode == 0
    _ok(mesh, "projects", "update", "asleep", "--disable")
    assert _until(mesh, token, 5).returncode == 5
    _ok(mesh, "projects", "update", "asleep", "--enable")
    assert _until(mesh, token, 0).returncode == 0


def test_another_signing_key(mesh: RunningMesh) -> None:
    """New tokens are of the new one; those that are out stay good."""
    old = mesh.cli_inside("keys", "create", "--role", "viewer", "-q").stdout.strip()
    kid = _ok(mesh, "keys", "rotate-signing")["kid"]
    new = mesh.cli_inside("keys", "create", "--role", "viewer", "-q").stdout.strip()
    assert [jwt.get_unverified_header(token)["kid"] == kid for token in (old, new)] == [False, True]
    for token in (old, new):
        assert _until(mesh, token, 0).returncode == 0


def test_limits(mesh: RunningMesh) -> None:
    """Set one by one, of projects and keys; 0 takes one away; both tables tell them."""
    _ok(mesh, "projects", "create", "busy")
    _ok(mesh, "limits", "set", "busy", "--requests-per-second", "2.5", "--burst", "10")
    both = _ok(mesh, "limits", "set", "busy", "--concurrent", "4", "--shadow")
    assert both == {
        "requests_per_second": 2.5,
        "burst": 10,
        "concurrent_requests": 4,
        "shadow": True,
    }
    assert _ok(mesh, "limits", "get", "busy") == both
    assert "2.5 requests/s, 10 at once, 4 in flight, only counted" in (
        mesh.cli_inside("projects", "get", "busy").stdout
    )
    assert _ok(mesh, "limits", "set", "busy", "--concurrent", "0", "--enforce") == {
        "requests_per_second": 2.5,
        "burst": 10,
        "concurrent_requests": 0,
        "shadow": False,
    }
    key = _ok(mesh, "keys", "create", "--project", "busy")["api_key"]["name"]
    assert _ok(mesh, "limits", "set", key, "--concurrent", "1")["concurrent_requests"] == 1
    assert _refused(mesh, 2, "limits", "set", "busy")["reason"] == "USAGE"
    assert _refused(mesh, 3, "limits", "get", "nobody")["status"] == "NOT_FOUND"


def test_a_limit_refuses_with_a_time(mesh: RunningMesh) -> None:
    """One request in a hundred seconds: the second is refused, with when to try again; exit code 5."""
    _ok(mesh, "projects", "create", "slow")
    _ok(mesh, "limits", "set", "slow", "--requests-per-second", "0.01", "--burst", "1")
    created = mesh.cli_inside("keys", "create", "--project", "slow", "--role", "viewer", "-q")
    refused = _until(mesh, created.stdout.strip(), 5)
    error = json.loads(refused.stderr)["error"]
    assert (error["status"], error["reason"]) == ("RESOURCE_EXHAUSTED", "REQUESTS_PER_SECOND")
    assert 0 < error["retry_after"] <= 100


def test_prices(mesh: RunningMesh) -> None:
    """For one or for many, exactly; of a model, from a day on; what has more places than one can have is refused."""
    made = _ok(
        mesh, "prices", "set", "output-token", "0.40", "--per", "1000000", "--model", "priced@2"
    )
    assert (made["amount"], made["unit"], made["model"], made["version"]) == (
        "0.0000004",
        "PRICE_UNIT_OUTPUT_TOKEN",
        "priced",
        "2",
    )
    later = _ok(mesh, "prices", "set", "request", "1.5", "--from", "2027-01-01")
    assert later["valid_from"] == "2027-01-01T00:00:00Z"
    listed = mesh.cli_inside("prices", "list", "--model", "priced").stdout
    assert "0.0000004" in listed
    assert "priced@2" in listed
    assert "1.5" in listed  # it may count for any model
    assert _refused(mesh, 2, "prices", "set", "row", "1", "--per", "3")["reason"] == "USAGE"
    assert _refused(mesh, 2, "prices", "set", "row", "much")["reason"] == "USAGE"


def test_costs_of_machines(mesh: RunningMesh) -> None:
    """What a pool's machines cost an hour."""
    made = _ok(mesh, "costs", "machine", "set", "gpu", "--hourly", "1.80", "--machines", "3")
    assert (made["pool"], made["hourly_amount"], made["machines"]) == ("gpu", "1.8", 3)
    assert "gpu" in mesh.cli_inside("costs", "machine", "list").stdout


def test_the_ledger(mesh: RunningMesh) -> None:
    """Credits and corrections are entries, once each however often they are sent; everything adds up.

    1. A credit and a correction of it; the same request id makes no second entry.
    2. The balance is their sum; the entries are listed, newest first.
    3. The proof; with what was known before it also proves that no history was rewritten.
    """
    _ok(mesh, "projects", "create", "paying")
    words = ("credits", "add", "paying", "10.25", "--reason", "welcome", "--request-id", "w-1")
    credit = _ok(mesh, *words)
    assert _ok(mesh, *words)["name"] == credit["name"]
    number = credit["name"].removeprefix("ledgerEntries/")
    reason = ("--reason", "too much", "--corrects", number)
    _ok(mesh, "ledger", "correct", "paying", "0.25", *reason)
    balance = _ok(mesh, "ledger", "balance", "paying")
    assert float(balance["owed"]) == -10
    entries = _ok(mesh, "ledger", "entries", "--project", "paying")
    assert [entry["reason"] for entry in entries] == ["too much", "welcome"]
    shown = mesh.cli_inside("ledger", "entries", "-n", "1").stdout.splitlines()
    assert shown[0].split()[:3] == ["ENTRY", "TIME", "KIND"]
    assert "correction" in shown[1]
    proof = _ok(mesh, "ledger", "verify")
    assert proof["ok"]
    known = f"{proof['head_entry'].removeprefix('ledgerEntries/')}:{proof['head_hash']}"
    _ok(mesh, "credits", "add", "paying", "1", "--reason", "more")
    assert _ok(mesh, "ledger", "verify", "--known", known)["ok"]
    told = mesh.cli_inside("ledger", "verify")
    assert (told.returncode, "everything adds up" in told.stdout) == (0, True)
    other = known[:-1] + ("0" if known[-1] != "0" else "1")
    found = mesh.cli_inside("ledger", "verify", "--known", other)
    assert (found.returncode, "HISTORY_REWRITTEN" in found.stdout) == (1, True)
    assert _refused(mesh, 2, "ledger", "verify", "--known", "7")["reason"] == "USAGE"


def test_budgets(mesh: RunningMesh) -> None:
    """Made, changed, listed as they stand, deleted."""
    _ok(mesh, "projects", "create", "thrifty")
    made = _ok(mesh, "budget", "set", "thrifty/daily", "--tokens", "5000", "--per", "day")
    assert (made["tokens"], made["window"]) == ("5000", "BUDGET_WINDOW_DAY")
    assert made["status"]["remaining"] == "5000"
    changed = _ok(mesh, "budget", "set", "thrifty/daily", "--shadow", "--alert", "80")
    assert (changed["tokens"], changed["shadow"], changed["alert_percents"]) == ("5000", True, [80])
    _ok(mesh, "budget", "set", "thrifty/cash", "--money", "12.50")
    shown = mesh.cli_inside("budget", "list", "--project", "thrifty").stdout
    assert "thrifty/cash" in shown
    assert "12.5 in money a month" in shown
    assert "5,000 tokens a day" in shown
    assert "(in " in mesh.cli_inside("budget", "get", "thrifty/daily").stdout
    assert mesh.cli_inside("budget", "delete", "thrifty/cash").returncode == 0
    assert _refused(mesh, 3, "budget", "get", "thrifty/cash")["status"] == "NOT_FOUND"
    both = ("budget", "set", "thrifty/x", "--tokens", "1", "--requests", "1")
    assert _refused(mesh, 2, *both)["reason"] == "USAGE"
    assert _refused(mesh, 2, "budget", "set", "thrifty/x")["reason"] == "USAGE"


def test_alerts(mesh: RunningMesh) -> None:
    """Set, listed, deleted; nothing was told yet."""
    _ok(mesh, "projects", "create", "watched")
    words = ("--monthly", "100", "--percent", "50", "--percent", "90")
    made = _ok(mesh, "alerts", "set", "watched/spending", *words)
    assert (made["monthly_amount"], made["percents"]) == ("100", [50, 90])
    assert "watched/spending" in mesh.cli_inside("alerts", "list").stdout
    assert _ok(mesh, "alerts", "told", "watched") == []
    assert mesh.cli_inside("alerts", "delete", "watched/spending").returncode == 0
    assert _ok(mesh, "alerts", "list", "--project", "watched") == []


def test_usage_of_nobody(mesh: RunningMesh, tmp_path: Path) -> None:
    """A report without requests says so; an export has its headers alone, and is this user's alone to read."""
    assert "no requests in this time" in mesh.cli_inside("usage").stderr
    assert _ok(mesh, "usage", "--by", "day", "--since", "7d")["total"]["requests"] == "0"
    file = tmp_path / "usage.csv"
    assert mesh.cli_inside("usage", "export", "--file", str(file)).returncode == 0
    assert file.read_text().count("\n") == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
    assert _refused(mesh, 3, "usage", "request", "0" * 32)["status"] == "NOT_FOUND"
    for words in (("--by", "colour"), ("--by", "day", "--by", "day"), ("--since", "yesterday")):
        assert _refused(mesh, 2, "usage", *words)["reason"] == "USAGE"
