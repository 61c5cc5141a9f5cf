"""A training script whose checkpoints can be drilled: `train_checkpoint.py save DIR` and `... restore DIR`.

`record` is brought along by hangdrill and does nothing outside of a drill. Call it on every rank with what you save,
right before you save it, and again with what the model and the optimizer hold right after a restore.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

try:
    from hangdrill.rank.checkpoint import record
except ImportError:

    def record(state: dict[str, Any]) -> None:
        """Outside of a drill."""


def main() -> None:
    action, directory = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.manual_seed(0 if action == "save" else 1)
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(3, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if action == "save":
        dcp.save(record_of(model, optimizer, step=2), checkpoint_id=directory)
    else:
        restore(model, optimizer, directory)
    dist.destroy_process_group()


def record_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    """The state as it is saved, noted for hangdrill."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": step}
    record(state)
    return state


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: str) -> None:
    """Set everything to what was saved, and note what is there afterwards."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=directory)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    record_of(model, optimizer, step=state["step"])


if __name__ == "__main__":
    main()
