"""Measures the engine beside other servers of text: `python -m benchmarks.llm --help`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import platformdirs

from benchmarks.llm import inferplane, ratios, table
from benchmarks.llm.contender import Catalog, Contender, start_llama
from benchmarks.llm.prompts import Text
from benchmarks.llm.reference import Reference, reference
from benchmarks.llm.scenario import SCENARIOS
from benchmarks.llm.trial import Plan, Report, Trial, first_token
from benchmarks.serving.__main__ import machine, names, say
from benchmarks.serving.contender import Running
from benchmarks.serving.environments import InstallError
from services.modelfiles.gguf_header import read_header
from services.worker.llm.adapters import gguf_tokenizer

_PEERS = ("inferplane", "openvino", "llama.cpp")
_ROUNDS = 3
_ARRIVING = 96  # calls of the open loop
_QUICK_ARRIVING = 48
_SLOW_SCENARIOS = ("A", "B")  # what a quick run leaves to the slowest


def plan(order: argparse.Namespace) -> Plan:
    """What everybody goes through."""
    quick: bool = order.quick
    return Plan(
        scenarios=tuple(order.scenario),
        rounds=order.rounds or (1 if quick else _ROUNDS),
        arriving=_QUICK_ARRIVING if quick else _ARRIVING,
    )


def contenders(order: argparse.Namespace, catalog: Catalog) -> Iterator[Contender]:
    """Who was asked for, ours first."""
    if "inferplane" in order.peer:
        yield from inferplane.contenders(catalog.files.original, ablations=order.ablations)
    if "openvino" in order.peer:
        yield from catalog.openvino()
    if "llama.cpp" in order.peer:
        yield from catalog.llama_cpp(_SLOW_SCENARIOS if order.quick else ())


def tokenizer_text(file: Path) -> Text:
    """The text that prompts are cut from, counted as the model counts."""
    fields = read_header(file).metadata
    tokenizer = gguf_tokenizer.read_tokenizer(fields, len(fields["tokenizer.ggml.tokens"]))
    return Text(lambda words: tokenizer.encode(words, special=False))


def right_texts(order: argparse.Namespace, catalog: Catalog, text: Text) -> Reference | None:
    """From llama.cpp in 32 bits, if it is there or may be made."""
    if "llama.cpp" not in order.peer and not catalog.llama.server.is_file():
        return None
    try:
        catalog.llama.make()
    except InstallError as error:
        say(f"no reference: {error}")
        return None
    start = partial(_start_twin, catalog)
    return reference(text, order.cache / "llm" / "reference.json", start, first_token)


def _start_twin(catalog: Catalog, folder: Path) -> Running:
    return start_llama(catalog.llama, catalog.files.twin(), folder, slots=1)


def measure(order: argparse.Namespace) -> list[Report]:
    """Every contender, one after the other."""
    catalog = Catalog(order.cache)
    text = tokenizer_text(catalog.files.original())
    right = right_texts(order, catalog, text)
    begun, reports = time.monotonic(), []
    for contender in contenders(order, catalog):
        spent = time.monotonic() - begun
        say(f"[{spent:4.0f} s] {contender.title} ...")
        if spent > 60 * order.minutes:
            report = Report(
                name=contender.name,
                variant=contender.variant,
                title=contender.title,
                what=contender.what,
                reason=f"no time left of {order.minutes:g} minutes",
            )
        else:
            report = Trial(contender, text, right, plan(order)).run()
        reports.append(report)
        say(f"    {brief(report)}")
    say(f"[{time.monotonic() - begun:4.0f} s] done")
    return reports


def brief(report: Report) -> str:
    """One line while the others are still waited for."""
    points = [f"{name} {point.rate:.0f} tok/s" for name, point in report.points.items()]
    told = f"first token after {report.first_token:.2f} s; {', '.join(points)}"
    return f"{told} {report.reason}" if report.reason else told


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.llm", description=__doc__)
    add = parser.add_argument
    add("--peer", type=names(_PEERS), default=list(_PEERS), help="by commas; default: all")
    every = list(SCENARIOS)
    add("--scenario", type=names(every), default=every, help=f"of {','.join(every)}; default: all")
    add("--quick", action="store_true", help="one round of each, less for the slowest")
    add("--rounds", type=int, default=0, help=f"of each scenario; default {_ROUNDS}, quick 1")
    add("--ablations", action="store_true", help="ours with a part of the engine off, too")
    add("--minutes", type=float, default=0, help="then nobody new is begun; default 60, quick 10")
    default = platformdirs.user_cache_path("inferplane") / "benchmarks"
    add("--cache", type=Path, default=default, help="for files and builds: %(default)s")
    add("--output", type=Path, default=Path("llm.json"), help="JSON; default: %(default)s")
    order = parser.parse_args()
    order.minutes = order.minutes or (10.0 if order.quick else 60.0)
    order.cache = order.cache.expanduser().absolute()
    return order


def main() -> int:
    """Parse, run, print; 1 if somebody of ours could not be measured."""
    order = parsed()
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reports = measure(order)
    told = {
        "machine": machine(),
        "plan": asdict(plan(order)),
        "reports": list(map(asdict, reports)),
    }
    order.output.write_text(json.dumps(told, indent=1))
    for line in (*table.lines(reports), *ratios.lines(reports)):
        say(line)
    say(f"\n{machine()}\nSaved: {order.output.absolute()}")
    return 1 if any(r.reason for r in reports if r.name == "inferplane") else 0


if __name__ == "__main__":
    sys.exit(main())
