"""Measures inferplane beside other servers: `python -m benchmarks.serving --help`."""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnxruntime
import platformdirs

from benchmarks.serving import catalog, inferplane, ratios, table, workload
from benchmarks.serving.contender import Contender
from benchmarks.serving.environments import Environments
from benchmarks.serving.trial import Plan, Report, Trial
from services.cli.adapters.mesh import cores

_PEERS = ("inferplane", *catalog.PEERS)
_ALL = (1, 8, 32, 128)
_RATES = {"mlp": 1000.0, "minilm": 100.0}


def plan(order: argparse.Namespace) -> Plan:
    """What everybody goes through."""
    quick: bool = order.quick
    # A second holds few answers of MiniLM, and none of 128 that wait for each other.
    given = (
        {"mlp": (1, 32, 128), "minilm": (1, 32)} if quick else dict.fromkeys(workload.NAMES, _ALL)
    )
    seconds = {"mlp": 1.0, "minilm": 2.0} if quick else dict.fromkeys(workload.NAMES, 5.0)
    return Plan(
        in_flight={name: order.in_flight or given[name] for name in workload.NAMES},
        rates={} if quick else _RATES,
        seconds={name: order.seconds or seconds[name] for name in workload.NAMES},
        warm_seconds=0.3 if quick else 1.0,
        starts=1 if quick else 2,
    )


def contenders(order: argparse.Namespace, folder: Path) -> Iterator[Contender]:
    """Who was asked for, ours first."""
    models = folder / "models"
    environments = Environments(folder)
    for name in order.peers:
        if name == "inferplane":
            yield from inferplane.contenders(models, quick=order.quick)
        else:
            peer = catalog.PEERS[name]
            yield from catalog.contenders(peer, environments, models, quick=order.quick)
    if order.peers[0] == "inferplane" and len(order.peers) > 1:
        # Once more at the end: how far it is from the first time, so far the machine has changed meanwhile.
        first = next(inferplane.contenders(models, quick=True))
        yield replace(first, variant=f"{first.variant}, again")


def measure(order: argparse.Namespace, folder: Path) -> list[Report]:
    """Every contender, one after the other."""
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    workloads = [workload.make(name, models) for name in workload.NAMES]
    for one in workloads:
        say(one.describe())
    chosen = [w for w in workloads if w.name in order.models]
    begun, reports = time.monotonic(), []
    for contender in contenders(order, folder):
        if order.variants and contender.variant not in order.variants:
            continue
        spent = time.monotonic() - begun
        say(f"[{spent:4.0f} s] {contender.title} ...")
        if spent > 60 * order.minutes:
            report = Report(name=contender.name, variant=contender.variant, what=contender.what)
            report.reason = f"no time left of {order.minutes:g} minutes"
        else:
            report = Trial(contender, chosen, plan(order)).run()
        reports.append(report)
        say(f"    {report.reason or brief(report)}")
    say(f"[{time.monotonic() - begun:4.0f} s] done")
    return reports


def brief(report: Report) -> str:
    """One line while the others are still waited for."""
    points = [f"{p.model}@{p.in_flight or 'open'} {p.result.rate:,.0f}/s" for p in report.points]
    return f"first answers after {report.first_answer:.2f} s; " + ", ".join(points)


def machine() -> dict[str, Any]:
    """Where this ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((li.partition(":")[2].strip() for li in lines if li.startswith("model name")), "?")
    return {
        "cpu": model,
        "cores": cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def save(path: Path, reports: Sequence[Report], order: argparse.Namespace) -> None:
    """Everything, as JSON."""
    every = [asdict(report) for report in reports]  # kept answers are gone already
    told = {"machine": machine(), "plan": asdict(plan(order)), "reports": every}
    path.write_text(json.dumps(told, indent=1))


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def names(allowed: Sequence[str]) -> Any:
    """A parser of names by commas."""

    def parse(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",") if name.strip()]
        for name in found:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r}; allowed: {', '.join(allowed)}")
        return found

    return parse


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving", description=__doc__)
    add = parser.add_argument
    add("--peers", type=names(_PEERS), default=list(_PEERS), help="by commas; default: all")
    add("--models", type=names(workload.NAMES), default=list(workload.NAMES), help="by commas")
    add("--variants", type=lambda t: t.split(","), help="only these, by commas")
    add("--seconds", type=float, help="timed for each load; default 5, quick 1 and 2")
    add("--in-flight", type=lambda t: tuple(int(n) for n in t.split(",")), help="closed loops")
    add("--minutes", type=float, help="after so many nobody new is begun; default 60, quick 10")
    add("--quick", action="store_true", help="short loads, one start, no open loop")
    default = platformdirs.user_cache_path("inferplane") / "benchmarks"
    add("--cache", type=Path, default=default, help="for environments and models: %(default)s")
    add("--output", type=Path, default=Path("serving.json"), help="JSON; default: %(default)s")
    order = parser.parse_args()
    order.minutes = order.minutes or (10.0 if order.quick else 60.0)
    return order


def main() -> int:
    """Parse, run, print; 1 if an answer was wrong."""
    order = parsed()
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = order.cache.expanduser().absolute()
    reports = measure(order, folder)
    save(order.output, reports, order)
    for line in (*table.lines(reports, order.models), *ratios.lines(reports)):
        say(line)
    say(f"\n{machine()}\nSaved: {order.output.absolute()}")
    return 1 if any(p.wrong for r in reports for p in r.points) else 0


if __name__ == "__main__":
    sys.exit(main())
