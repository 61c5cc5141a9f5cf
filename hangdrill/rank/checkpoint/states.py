"""A small training state with what real ones hold: parameters, buffers of other dtypes, AdamW's moments, a step.

layout plain: every rank holds everything (DDP). layout fsdp2: parameters and moments are sharded over the ranks.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

__all__ = ["LAYOUTS", "Training"]

LAYOUTS = ("plain", "fsdp2")
FEATURES, HIDDEN, CLASSES, BATCH = 12, 10, 3, 4


class Net(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Two layers, the second one of an odd size so that shards differ, and buffers in bfloat16 and int64."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(FEATURES, HIDDEN)
        self.last = torch.nn.Linear(HIDDEN, CLASSES)
        self.register_buffer("scale", torch.randn(HIDDEN).to(torch.bfloat16))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Any) -> Any:
        """inputs [BATCH, FEATURES] -> [BATCH, CLASSES]."""
        self.seen += len(inputs)
        return self.last(torch.relu(self.first(inputs)))


class Training:
    """A model and its optimizer after `steps` steps. Another seed gives other values everywhere."""

    def __init__(self, layout: str, device: Any, *, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        self.step = 0
        self._device = device
        self._model = _spread(Net().to(device), layout)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=0.001 * (seed + 1))
        for _ in range(steps):
            self.train()

    def train(self) -> None:
        """One step."""
        self.step += 1
        generator = torch.Generator().manual_seed(1000 * self.step + dist.get_rank())
        inputs = torch.randn(BATCH, FEATURES, generator=generator).to(self._device)
        self._model(inputs).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """As it is given to torch.distributed.checkpoint; its tensors are those of the model and the optimizer."""
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def take(self, state: dict[str, Any]) -> None:
        """Set model, optimizer and step to a state that was loaded."""
        set_state_dict(
            self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.step = state["step"]


def _spread(model: Any, layout: str) -> Any:
    if layout == "plain":
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
    return model
