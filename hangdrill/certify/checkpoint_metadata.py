"""What the `.metadata` of torch.distributed.checkpoint says, read without torch, and without running anything in it.

It is a pickle of torch's own classes. Here each class is a stub that only keeps what it was given, so no name in the
file is ever looked up. Which bytes of which file hold which tensor is all that is taken from it, and in which form it
was written: torch 2.15 writes one value more of each tensor, which 2.14.1 and older cannot unpack.
"""

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.certify.checkpoint_pickle import PickleTrouble, check_pickle

__all__ = ["MetadataError", "Part", "StoredMetadata", "read_metadata"]

MAX_METADATA_BYTES = 1 << 30
MOST_CHARACTERS = 200
MOST_NAMES = 1000
"""Classes and functions that it names; torch's have a dozen."""
OLD_FORM_VALUES = 5
"""What TensorProperties.__getstate__ returns before torch 2.15."""


class MetadataError(Exception):
    """The file is not a whole `.metadata`; says why. is_cut: its end is missing. is_too_large: it may be whole, and is
    not read."""

    def __init__(self, why: str, *, is_cut: bool = False, is_too_large: bool = False) -> None:
        super().__init__(why)
        self.is_cut, self.is_too_large = is_cut, is_too_large


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of one tensor or value. is_plain: written by torch.save as it is, and so with checksums inside."""

    name: str
    file: str
    offset: int
    length: int
    is_plain: bool = True


class StoredMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """parts: sorted by file and offset. form: "2.15" where only torch 2.15 and newer read it, else "2.14"."""

    parts: tuple[Part, ...]
    form: str


class _Stub:
    """Stands for any class, function or constant of the file."""

    source = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "_Stub":  # noqa: ANN401 - whatever the file says
        stub = object.__new__(cls)
        stub.args = args
        return stub

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as a pickle calls it
        pass

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - as a pickle calls it
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - as a pickle calls it
        pass

    def append(self, value: Any) -> None:  # noqa: ANN401 - as a pickle calls it
        pass


class _Reader(pickle.Unpickler):
    """Finds nothing: every name is a stub of its own."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._stubs: dict[tuple[str, str], type[_Stub]] = {}

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        stub = self._stubs.get((module, name))
        if stub is None:
            if len(self._stubs) == MOST_NAMES:
                raise MetadataError(f"it names more than {MOST_NAMES} classes")
            stub = self._stubs[module, name] = self._stub(module, name)
        return stub

    @staticmethod
    def _stub(module: str, name: str) -> type[_Stub]:
        return type(name.rpartition(".")[2] or "unnamed", (_Stub,), {"source": f"{module}.{name}"})


def read_metadata(path: Path) -> StoredMetadata:
    """Raises MetadataError when the file is cut, damaged, too large or something else; OSError when unreadable."""
    if (size := path.stat().st_size) > MAX_METADATA_BYTES:
        raise MetadataError(f"it has {size} bytes, and hangdrill reads {MAX_METADATA_BYTES} at most", is_too_large=True)
    root = _unpickled(path)
    fields = root.state if isinstance(root, _Stub) else None
    stored = fields.get("storage_data") if isinstance(fields, dict) else None
    tensors = fields.get("state_dict_metadata") if isinstance(fields, dict) else None
    if not isinstance(stored, dict) or not isinstance(tensors, dict):
        raise MetadataError("it says nothing of stored tensors")
    parts = sorted((_part(index, info) for index, info in stored.items()), key=lambda part: (part.file, part.offset))
    return StoredMetadata(parts=tuple(parts), form=_form(tensors))


def _unpickled(path: Path) -> object:
    data = path.read_bytes()
    try:
        check_pickle(data)
        return _Reader(data).load()
    except MetadataError:
        raise
    except PickleTrouble as error:
        if error.is_too_large:
            raise MetadataError(str(error), is_too_large=True) from error
        why = "it is cut" if error.is_cut else f"it is no readable pickle: {error}"
        raise MetadataError(why, is_cut=error.is_cut) from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise MetadataError(f"it is no readable pickle: {_short(error)}") from error


def _short(error: Exception) -> str:
    """A value of the file may be in the text."""
    return f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]


def _part(index: object, info: object) -> Part:
    about = info.state if isinstance(info, _Stub) else None
    if not isinstance(about, dict):
        raise MetadataError("it does not say where a tensor is stored")
    name = index.state.get("fqn", "") if isinstance(index, _Stub) and isinstance(index.state, dict) else ""
    if not isinstance(name, str):
        raise MetadataError("the name of a tensor is no text")
    file, offset, length = about.get("relative_path"), about.get("offset"), about.get("length")
    if not isinstance(file, str) or not isinstance(offset, int) or not isinstance(length, int):
        raise MetadataError(f"it does not say where {name or 'a tensor'} is stored")
    if file.startswith("/") or ".." in file.split("/"):
        raise MetadataError(f"it says that {name or 'a tensor'} is stored outside of the checkpoint: {file}")
    return Part(name=name, file=file, offset=offset, length=length, is_plain=not about.get("transform_descriptors"))


def _form(tensors: dict[Any, Any]) -> str:
    lengths = {len(values) for values in _property_values(tensors)}
    return "2.15" if lengths and max(lengths) > OLD_FORM_VALUES else "2.14"


def _property_values(tensors: dict[Any, Any]) -> Iterator[tuple[Any, ...]]:
    for about in tensors.values():
        fields = about.state if isinstance(about, _Stub) else None
        properties = fields.get("properties") if isinstance(fields, dict) else None
        if isinstance(properties, _Stub) and isinstance(properties.state, tuple):
            yield properties.state
