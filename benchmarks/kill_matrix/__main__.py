"""A whole `up` whose processes are killed while calls run: is each accepted request counted once, as it was delivered?

Run: .venv/bin/python -m benchmarks.kill_matrix [--requests 300] [--at-once 8] [--every 30] [--seed 1]
     .venv/bin/python -m benchmarks.kill_matrix --directed all

Calls come every way: tensors by gRPC and REST, whole texts by gRPC and OpenAI's API, streams by gRPC and as events. At
random, callers, workers, Envoy and metering die by SIGKILL in random order, each time after some more answers, at any
moment. Directed, each of them dies at each chunk of a stream of 16 tokens and at each stage of a unary call: workers
tell which stage they have come to, and wait there for the kill. Calls that find nobody are not counted among the
requests. Then everything is left alone until no outbox holds a row, and it is asked:

- has each request that was answered exactly one row that counts, and each other at most one;
- are there as many rows as workers have accepted requests, by a second count that they keep for this (at random, one
  more for each worker that was killed between the two counts at most; directed, exactly, for each call);
- did each caller get no more tokens than are counted, and were no more counted than handed out;
- does the ledger verify, and does no budget hold anything.

Ends with 1, and says why, if not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping

from benchmarks.kill_matrix import verdict
from benchmarks.kill_matrix.directed import Directed
from benchmarks.kill_matrix.gate import Gate
from benchmarks.kill_matrix.place import Place, accounts, ground, settle
from benchmarks.kill_matrix.random_kills import Killer, Plan
from benchmarks.kill_matrix.trials import all_trials, few_trials, summary, table
from benchmarks.kill_matrix.verdict import Sent
from tests.e2e.mesh import Mesh

_TRIALS = {"all": all_trials, "few": few_trials}


def judge(place: Place, sent: Mapping[int, Sent], kills: Counter[str], between: int) -> list[str]:
    """What is not as promised of rows; prints the figures."""
    stored = verdict.read_stored(place.database)
    audit = verdict.read_audit(place.audit)
    rows = sum(len(one.outcomes) for one in stored.values())
    outcomes = Counter(verdict.OUTCOMES[one.outcome] for one in stored.values())
    print(f"killed: {dict(kills)}")
    print(f"requests sent: {len(sent)}: {dict(Counter(one.kind.value for one in sent.values()))}")
    print(f"as their callers saw them end: {verdict.ends(sent)}")
    print(f"accepted by workers: {audit.accepted}; rows: {rows}; requests counted: {len(stored)}")
    print(f"requests by outcome: {dict(outcomes.most_common())}")
    tokens = sum(one.tokens for one in stored.values())
    received = sum(one.tokens for one in sent.values())
    print(f"tokens received: {received} <= counted: {tokens} <= handed out: {audit.tokens}")
    return verdict.problems(sent, stored, audit, between)


def at_random(mesh: Mesh, place: Place, plan: Plan) -> tuple[list[str], Counter[str]]:
    """What is not as promised, and how many were killed."""
    killer = Killer(mesh, place, plan)
    begin = time.monotonic()
    killer.run()
    print(f"called for {time.monotonic() - begin:.0f} s", flush=True)
    settle(place)
    sent = verdict.read_sent(place.log)
    return judge(place, sent, killer.kills, killer.kills["worker"]), killer.kills


def as_directed(mesh: Mesh, place: Place, which: str) -> tuple[list[str], Counter[str]]:
    """The same of trials."""
    with Gate(place.gate) as gate:
        directed = Directed(mesh, place, gate)
        begin = time.monotonic()
        directed.run(list(_TRIALS[which]()))
        print(f"tried for {time.monotonic() - begin:.0f} s", flush=True)
        settle(place)
    cells = directed.cells()
    print(table(cells))
    print(summary(cells))
    found = judge(place, directed.sent, directed.kills, 0)
    return [*found, *(one for cell in cells for one in cell.problems)], directed.kills


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--every", type=float, default=30, help="answers between kills, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directed", choices=_TRIALS, help="kills at chosen moments instead")
    said = vars(parser.parse_args())
    directed = said.pop("directed")
    with ground(gated=directed is not None) as (mesh, place):
        if directed is None:
            found, kills = at_random(mesh, place, Plan(**said))
        else:
            found, kills = as_directed(mesh, place, directed)
        found += accounts(mesh)
    for problem in found[:50]:
        print(f"WRONG: {problem}")
    print(json.dumps({"kills": kills, "wrong": len(found)}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
