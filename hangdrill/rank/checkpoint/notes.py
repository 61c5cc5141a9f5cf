"""What a rank notes of a state: the sha256, dtype and shape of each tensor, and each plain value as text."""

import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from hangdrill.rank.files import write_json

__all__ = ["NOTE_VARIABLE", "SCHEMA", "contents_of", "note_path", "write_note", "write_own_note"]

SCHEMA = "hangdrill.checkpoint-note/1"
NOTE_VARIABLE = "HANGDRILL_CHECKPOINT_NOTE"
"""Path and beginning of the names of the notes that a user's own script leaves by `record`."""


def contents_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors and values of a nested state, by their path in it."""
    tensors: dict[str, dict[str, Any]] = {}
    values: dict[str, str] = {}
    for name, value in _leaves("", state):
        if isinstance(value, torch.Tensor):
            tensors[name] = _about(value)
        else:
            values[name] = _text_of(value)
    return {"tensors": tensors, "values": values}


def note_path(prefix: str, rank: int) -> Path:
    """Where a rank's note lies."""
    return Path(f"{prefix}.rank{rank}.json")


def write_note(prefix: str, rank: int, world_size: int, content: Mapping[str, Any]) -> None:
    """Write one note, whole or not at all. Raises OSError."""
    about = {"schema": SCHEMA, "rank": rank, "world_size": world_size, "torch": str(torch.__version__)}
    write_json(note_path(prefix, rank), {**about, **content})


def write_own_note(prefix: str, state: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """The note of a script that hangdrill did not write."""
    rank, world_size = int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    write_note(prefix, rank, world_size, {"outcome": "done", **contents_of(state)})


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, (list, tuple)) and any(isinstance(inner, (torch.Tensor, Mapping)) for inner in value):
        for index, inner in enumerate(value):
            yield from _leaves(f"{path}.{index}", inner)
    else:
        yield path, value


def _text_of(value: Any) -> str:
    """A plain value as it is written; of anything else only what it is: its text may hold addresses."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text_of, value))}]"
    plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype))
    return repr(value) if plain else f"<{type(value).__module__}.{type(value).__qualname__}>"


def _about(tensor: Any) -> dict[str, Any]:
    """Of a DTensor, this rank's part and how it is placed."""
    about: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype)}
    if hasattr(tensor, "to_local"):
        about["placements"] = [str(placement) for placement in tensor.placements]
        about["mesh"] = list(tensor.device_mesh.shape)
        tensor = tensor.to_local()
        if hasattr(tensor, "wait"):
            tensor = tensor.wait()
    return {**about, "sha256": _sha256(tensor.detach())}


def _sha256(tensor: Any) -> str:
    """Of the elements in order, whatever the strides are. Needs no numpy."""
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    plain = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    size = plain.numel() * plain.element_size()
    if size == 0:
        return hashlib.sha256(b"").hexdigest()
    return hashlib.sha256((ctypes.c_char * size).from_address(plain.data_ptr())).hexdigest()
