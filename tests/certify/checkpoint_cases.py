"""What the tests of checkpoints share: rows of the pair table, real checkpoints, and stacks of other torch versions."""

import os
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdrill.certify.checkpoint_attempts import DrillOptions, DrillStack, Variant
from hangdrill.certify.checkpoint_pairs import PairDrill
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.receipt import CheckpointOutcome, CheckpointPair

SCRIPT = Variant(layout="script")
PLAIN = Variant(layout="plain")


def row(
    saved_by, restored_by, outcome=CheckpointOutcome.EQUAL, *, mode="sync", layout="plain", detail="d", one_way=False
):
    return CheckpointPair(
        saved_by=saved_by,
        restored_by=restored_by,
        mode=mode,
        layout=layout,
        outcome=outcome,
        detail=detail,
        one_way=one_way,
        evidence=(f"{saved_by}-{restored_by}.json",),
    )


def table(outcomes, **about):
    """Rows of {"a>b": outcome}; every pair of a and b that is not named is equal."""
    every = {f"{by}>{to}": CheckpointOutcome.EQUAL for by in "ab" for to in "ab"} | outcomes
    return [row(*pair.split(">"), outcome, **about) for pair, outcome in every.items()]


@contextmanager
def old_form():
    """In this block checkpoints are written in the form of torch 2.14 and older."""
    from torch.distributed.checkpoint.metadata import TensorProperties

    newer = TensorProperties.__getstate__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TensorProperties, "__getstate__", lambda self: newer(self)[:5])
        yield


def save_alone(directory):
    """A real checkpoint, saved by the torch of the tests in this process."""
    import torch
    import torch.distributed.checkpoint as dcp

    torch.manual_seed(0)
    state = {
        "model": {"weight": torch.randn(6, 5), "half": torch.randn(7).to(torch.bfloat16)},
        "optimizer": {"moment": torch.randn(6, 5)},
        "step": 3,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it works in a single process
        dcp.save(state, checkpoint_id=directory, no_dist=True)
    return state


def load_weight(directory):
    """The weight in a checkpoint of `save_alone`, as torch restores it."""
    import torch
    import torch.distributed.checkpoint as dcp

    weight = torch.zeros(6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load({"model": {"weight": weight}}, checkpoint_id=directory, no_dist=True)
    return weight


def stack_of(version):
    """The Python of a stack, from HANGDRILL_STACKS; skips with the reason where there is none."""
    home = Path(os.environ.get("HANGDRILL_STACKS") or Path.home() / ".cache/hangdrill-stacks")
    python = home / version / "bin/python"
    if not python.exists():
        pytest.skip(f"no stack with torch {version}: make {home / version} with `pip install torch=={version} numpy`")
    return str(python)


def script_drill(tmp_path, script, *, limit_s=60.0, name="drill"):
    """A drill whose only variant is a script of the user's, `python script save|restore DIRECTORY`, of one rank."""
    path = tmp_path / f"{name}.py"
    path.write_text(script)
    options = DrillOptions(
        variants=(SCRIPT,),
        cwd=tmp_path,
        ranks=1,
        limit_s=limit_s,
        save=f"{{python}} {path} save {{checkpoint}}",
        restore=f"{{python}} {path} restore {{checkpoint}}",
    )
    work_dir = tmp_path / name
    work_dir.mkdir()
    return PairDrill(options, work_dir=work_dir, out_dir=work_dir, interrupt=Interrupt())


def this_stack(name="a", **environ):
    return DrillStack(name=name, python=sys.executable, environ={**os.environ, **environ})
