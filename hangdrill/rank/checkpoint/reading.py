"""Reads a whole checkpoint without the model that it belongs to: that this torch can, and the sha256 of every tensor.

For an older checkpoint of the user's own, whose training script is not at hand. One process; at most about a gigabyte,
or one tensor, is held at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from hangdrill.rank.checkpoint.notes import contents_of

__all__ = ["read"]

BATCH_BYTES = 1 << 30


def read(directory: Path) -> dict[str, Any]:
    """Every tensor and value, by the names in the checkpoint. Raises what torch raises."""
    known = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    tensors: dict[str, Any] = {}
    values: dict[str, str] = {}
    for names in _batches(known):
        state = {name: _place_for(known[name]) for name in names}
        dcp.load(state, checkpoint_id=directory, no_dist=True)
        contents = contents_of(state)
        tensors.update(contents["tensors"])
        values.update(contents["values"])
    return {"tensors": tensors, "values": values}


def _place_for(about: Any) -> Any:
    """An empty tensor to read into; what is no tensor is put into the state whole."""
    return torch.empty(about.size, dtype=about.properties.dtype) if hasattr(about, "properties") else None


def _batches(known: dict[str, Any]) -> Iterator[list[str]]:
    batch: list[str] = []
    held_bytes = 0
    for name, about in known.items():
        size = about.size.numel() * about.properties.dtype.itemsize if hasattr(about, "properties") else 0
        if batch and held_bytes + size > BATCH_BYTES:
            yield batch
            batch, held_bytes = [], 0
        batch.append(name)
        held_bytes += size
    if batch:
        yield batch
