"""The demo's story: start a mesh, push real models, call them, chat, split traffic, move it live."""

import asyncio
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from services.cli.adapters import access
from services.cli.demo import account, calls, chat, digits, minilm, smollm2
from services.cli.demo.judge import Judge
from services.cli.demo.shell import Shell
from services.cli.demo.stream import CallStream
from services.rpc.tcp_ports import free_port

_USUAL_PORT = 8080
_SHOWN_IMAGES = (0, 20, 47, 60, 88, 117, 130, 176)
_PHASE_CALLS = 500
_BAR = 40  # characters
_SENTENCES = (
    "A cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "Shares fell sharply after the announcement.",
)


def demo(*, exit_: bool, port: int | None) -> None:
    """Run the story; with `exit_` end when it is told, with 1 if any served answer was wrong or any call failed.

    The edge listens on `port`; 0 is any free one, None the usual one if it is free.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the mesh is stopped too
    console = Console(highlight=False)
    began = time.monotonic()
    judge = Judge()
    chosen = _choose_port(console) if port is None else port or free_port()
    with _folder(console) as folder:
        shell = Shell(console, folder / "state", f"127.0.0.1:{chosen}")
        with _mesh(shell):
            _push_and_deploy(shell, judge, folder)
            shell = _open_account(shell)
            with access.given(shell.token, "the demo's project"):
                _ask_digits(shell, judge)
                _ask_minilm(shell, judge)
                _chat(shell, judge)
                failed = asyncio.run(_move_traffic(shell, judge))
            _show_usage(shell)
            _verdict(console, judge, failed, time.monotonic() - began)
            if not exit_:
                _stay(shell)
        if exit_ and (judge.wrong or failed):
            raise typer.Exit(1)


@contextmanager
def _folder(console: Console) -> Iterator[Path]:
    """A folder for the demo's files and state, gone at the end unless the demo fails."""
    folder = Path(tempfile.mkdtemp(prefix="inferplane-demo-"))
    failed = True
    try:
        yield folder
        failed = False
    except KeyboardInterrupt:
        failed = False
        raise
    finally:
        if failed:
            console.print(f"The demo failed; it keeps {folder}. To read its logs:", soft_wrap=True)
            hint = f"  INFERPLANE_STATE_DIR={folder / 'state'} inferplane logs"
            console.print(hint, soft_wrap=True)
        else:
            shutil.rmtree(folder)


def _choose_port(console: Console) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _USUAL_PORT))
        except OSError:
            port = free_port()
            console.print(f"Port {_USUAL_PORT} is taken; the demo uses {port}.")
            return port
    return _USUAL_PORT


@contextmanager
def _mesh(shell: Shell) -> Iterator[None]:
    """A mesh of two workers for as long as the demo lasts, however it ends."""
    _headline(shell.console, "Start: registry, metering, router, Envoy and two workers")
    port = shell.address.rpartition(":")[2]
    try:
        shell.run("up", "--detach", "--workers", "2", "--edge-port", port)
        yield
    finally:
        shell.run("down", quiet=True)


def _headline(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}", align="left")


def _push_and_deploy(shell: Shell, judge: Judge, folder: Path) -> None:
    _headline(shell.console, "Two real models: push, then deploy")
    shell.console.print(
        "digits 1 is trained on 80 images, digits 2 on 1,347; minilm embeds sentences."
    )
    files = {(digits.MODEL_ID, v): digits.export(v, folder) for v in ("1", "2")}
    files[minilm.MODEL_ID, "1"] = minilm.export(folder)
    settings = {minilm.MODEL_ID: minilm.settings(folder)}
    for (model, version), path in files.items():
        judge.learn(model, version, path)
        told = ("--settings", str(settings[model])) if model in settings else ()
        shell.run("models", "push", f"{model}@{version}", str(path), *told)
    shell.run("deploy", "digits@1")
    shell.run("deploy", "digits@2", "--weight", "10")
    shell.run("deploy", "minilm@1")


def _open_account(shell: Shell) -> Shell:
    _headline(shell.console, "Who calls, and what it costs: a project, its key, prices")
    return account.open_account(shell)


def _show_usage(shell: Shell) -> None:
    _headline(shell.console, "What was used, and what it cost")
    account.show_usage(shell)


def _ask_digits(shell: Shell, judge: Judge) -> None:
    _headline(shell.console, "Ask digits: both versions by gRPC, the endpoint by REST")
    data = digits.load()
    table = Table("image", "true label", "version 1 says", "version 2 says", "REST says", box=None)
    for index in _SHOWN_IMAGES:
        feeds = {"image": data.held_out_images[index : index + 1]}
        said = []
        for version in ("1", "2"):
            got = calls.infer_grpc(shell.address, "digits", feeds, version)
            judge.check("digits", version, feeds, got.outputs)
            said.append(str(got.outputs["label"][0]))
        rest = calls.infer_rest(shell.address, "digits", feeds)
        judge.check("digits", rest.version, feeds, rest.outputs)
        truth = str(data.held_out_labels[index])
        marked = [label if label == truth else f"[red]{label}" for label in said]
        table.add_row(
            str(index), truth, *marked, f"{rest.outputs['label'][0]} (version {rest.version})"
        )
    shell.console.print(table)


def _ask_minilm(shell: Shell, judge: Judge) -> None:
    _headline(shell.console, "Ask minilm: sentences as vectors")
    tokenizer = minilm.tokenizer()
    vectors = []
    for number, sentence in enumerate(_SENTENCES):
        encoded = tokenizer.encode(sentence)
        feeds = {
            "input_ids": np.array([encoded.ids], np.int64),
            "attention_mask": np.array([encoded.attention_mask], np.int64),
            "token_type_ids": np.array([encoded.type_ids], np.int64),
        }
        ask = calls.infer_rest if number % 2 else calls.infer_grpc
        got = ask(shell.address, "minilm", feeds)
        judge.check("minilm", got.version, feeds, got.outputs)
        vectors.append(got.outputs["sentence_embedding"][0])
    base = vectors[0].astype(np.float64)
    for sentence, vector in zip(_SENTENCES[1:], vectors[1:], strict=True):
        shell.console.print(f"{base @ vector:6.3f}  {_SENTENCES[0]}  ~  {sentence}")


def _chat(shell: Shell, judge: Judge) -> None:
    _headline(shell.console, "A language model: push it from a package index, deploy it, chat")
    if chat.serve(shell):
        chat.ask(shell, judge)


async def _move_traffic(shell: Shell, judge: Judge) -> int:
    """Move the split under a steady stream of calls; returns how many of them failed."""
    _headline(shell.console, "Move traffic live, under a stream of calls")
    stream = CallStream(shell.address, judge)
    stream.start()
    try:
        for split in (("1=90", "2=10"), ("1=50", "2=50"), ("2=100",)):
            await asyncio.to_thread(shell.run, "traffic", "set", "digits", *split)
            stream.reset()
            _show_shares(shell.console, await stream.wait_for(_PHASE_CALLS + stream.failed))
    finally:
        await stream.stop()
    colour = "red" if stream.failed else "green"
    shell.console.print(f"[{colour}]{stream.failed} calls failed.[/] {stream.last_error}")
    return stream.failed


def _show_shares(console: Console, versions: dict[str, int]) -> None:
    total = sum(versions.values())
    for version in ("1", "2"):
        share = versions.get(version, 0) / max(total, 1)
        console.print(f"  version {version}  {'█' * round(share * _BAR):{_BAR}} {share:6.1%}")


def _verdict(console: Console, judge: Judge, failed: int, seconds: float) -> None:
    _headline(console, "Result")
    good = not judge.wrong and not failed
    console.print(
        f"{judge.right} of {judge.right + judge.wrong} answers are right: tensors as bare ONNX Runtime"
        " computes them with the version that answered, texts the same however they were asked for;"
        f" {failed} calls failed; {seconds:.0f} s in all.",
        style="green" if good else "red",
    )


def _stay(shell: Shell) -> None:
    _headline(
        shell.console,
        "It runs until Ctrl-C. In other terminals, as its admin, then as a caller:",
    )
    other = (
        "" if shell.address.endswith(f":{_USUAL_PORT}") else f" INFERPLANE_ADDRESS={shell.address}"
    )
    for line in (
        f"export INFERPLANE_STATE_DIR={shell.state_dir}{other}",
        "inferplane status",
        "inferplane traffic set digits 1=20 2=80",
        "inferplane usage --by key",
        "inferplane worker",
        "inferplane logs --follow",
        "",
        f"export INFERPLANE_API_KEY=$(cat {shell.key_file})",
        f"inferplane chat {smollm2.MODEL_ID}",
        f'curl http://{shell.address}/v2/models/digits -H "authorization: Bearer $INFERPLANE_API_KEY"',
    ):
        shell.console.print(f"  {line}", soft_wrap=True)
    with suppress(KeyboardInterrupt):
        signal.pause()
    shell.console.print("Stopping.")
