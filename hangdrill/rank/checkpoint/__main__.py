"""`torchrun ... -m hangdrill.rank.checkpoint save|restore|read --notes DIRECTORY NAME=DIRECTORY ...`

NAME is LAYOUT-MODE (plain-sync, plain-async, fsdp2-sync, fsdp2-async), with @ANYTHING behind it where two checkpoints
would be called the same; DIRECTORY is the checkpoint's. `read` takes any checkpoint, under any name, in one rank. One
after another; each leaves a note a rank, NOTES/NAME.rank<r>.json, also when it failed. After a failure the program ends
with 1, so that the next checkpoint is tried in a fresh process. A step that takes longer than --limit-s ends the
process, and leaves where it was in NOTES/NAME.rank<r>.stacks.
"""

import argparse
import faulthandler
import os
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from hangdrill.rank.accelerator import bind, device_of
from hangdrill.rank.checkpoint.notes import contents_of, write_note
from hangdrill.rank.checkpoint.reading import read
from hangdrill.rank.checkpoint.states import LAYOUTS, Training

MODES = ("sync", "async")
SAVED_STEPS, OTHER_STEPS = 3, 1
SAVED_SEED, OTHER_SEED = 0, 7
FAILED = 1
MEETING_S = 120.0
"""How long ranks may wait for one another beyond the limit: they import torch at different speeds."""


def main() -> None:
    """Save or restore what the command line names."""
    options = _options()
    act = {"save": save, "restore": restore, "read": _read}[options.action]
    device = device_of(options.backend, int(os.environ.get("LOCAL_RANK", "0")))
    bind(device)
    backend = options.backend if device.type == "cpu" else f"cpu:gloo,{device.type}:{options.backend}"
    dist.init_process_group(backend, timeout=timedelta(seconds=options.limit_s + MEETING_S))
    for name, directory in options.checkpoints:
        if not _noted(options, name, partial(act, name, directory, device)):
            os._exit(FAILED)  # the other ranks may be inside a collective: nothing is waited for
    dist.destroy_process_group()


def save(name: str, directory: Path, device: Any) -> dict[str, Any]:
    """Train, note the state, save it. An asynchronous save goes on while the next step changes the parameters."""
    layout, mode = _kind(name).split("-")
    training = Training(layout, device, seed=SAVED_SEED, steps=SAVED_STEPS)
    state = training.state()
    contents = contents_of(state)
    if mode == "sync":
        dcp.save(state, checkpoint_id=directory)
    else:
        group = dist.new_group(backend="gloo")  # of its own: training and saving must not mix their operations
        future = dcp.async_save(state, checkpoint_id=directory, process_group=group)
        training.train()
        future.result()
    return contents


def restore(name: str, directory: Path, device: Any) -> dict[str, Any]:
    """Restore into a training that stands elsewhere in everything, and note what the model and optimizer hold then."""
    layout, _ = _kind(name).split("-")
    training = Training(layout, device, seed=OTHER_SEED, steps=OTHER_STEPS)
    state = training.state()
    dcp.load(state, checkpoint_id=directory)
    training.take(state)
    return contents_of(training.state())


def _read(name: str, directory: Path, device: Any) -> dict[str, Any]:
    return read(directory)


def _noted(options: argparse.Namespace, name: str, act: Callable[[], dict[str, Any]]) -> bool:
    prefix, rank = str(options.notes / name), dist.get_rank()
    began_s = time.monotonic()
    try:
        with _limited(f"{prefix}.rank{rank}.stacks", options.limit_s):
            contents = {"outcome": "done", **act()}
    except (Exception, dcp.api.CheckpointException) as error:
        contents = {"outcome": "failed", "error": _about_error(error)}
    contents["took_s"] = time.monotonic() - began_s
    write_note(prefix, rank, dist.get_world_size(), contents)
    return bool(contents["outcome"] == "done")


@contextmanager
def _limited(stacks: str, limit_s: float) -> Any:
    """End the process when the block takes longer; a thread of C does it, so it needs no GIL."""
    with Path(stacks).open("w", encoding="utf-8") as file:
        faulthandler.dump_traceback_later(limit_s, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    Path(stacks).unlink()


def _about_error(error: BaseException) -> dict[str, str]:
    """The first cause that any rank met: DCP gathers all ranks' errors into one."""
    cause, frames = error, traceback.extract_tb(error.__traceback__)
    for cause, frames in getattr(error, "failures", {}).values():  # noqa: B007 - used after the loop
        break
    last = frames[-1] if frames else None
    return {
        "type": type(cause).__name__,
        "message": str(cause)[:2000],
        "where": f"{last.filename}:{last.lineno} in {last.name}" if last else "",
        "traceback": "".join(traceback.format_exception(error))[-8000:],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hangdrill.rank.checkpoint")
    parser.add_argument("action", choices=("save", "restore", "read"))
    parser.add_argument("checkpoints", nargs="+", type=_checkpoint, metavar="NAME=DIRECTORY")
    parser.add_argument("--notes", type=Path, required=True)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--limit-s", type=float, default=60.0)
    options = parser.parse_args()
    known = {f"{layout}-{mode}" for layout in LAYOUTS for mode in MODES}
    for name, _ in options.checkpoints:
        if options.action != "read" and _kind(name) not in known:
            parser.error(f"there is no {name!r}; there are {', '.join(sorted(known))}")
    return options


def _kind(name: str) -> str:
    return name.partition("@")[0]


def _checkpoint(text: str) -> tuple[str, Path]:
    name, _, directory = text.partition("=")
    if not directory:
        raise argparse.ArgumentTypeError(f"expected NAME=DIRECTORY, got {text!r}")
    return name, Path(directory)


if __name__ == "__main__":
    main()
