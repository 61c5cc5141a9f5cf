"""Negative controls of the checkpoint drill: checkpoints broken on purpose, each of which must be called what it is.

Four are told by their files alone. The fifth has one other byte in a tensor and files that nobody can find fault with:
torch restores it without a word, so only the comparison of what was restored can catch it.
"""

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from hangdrill.certify.checkpoint_look import METADATA, CheckpointState, look
from hangdrill.certify.checkpoint_metadata import Part, read_metadata
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import Control
from hangdrill.model.verdict import Verdict

__all__ = ["PLANTS", "copy_of", "cut_shard", "drop_metadata", "drop_shard", "file_controls", "flip_byte"]

LOCAL_HEADER_BYTES = 30


def flip_byte(directory: Path, of: str = "model.") -> str:
    """Another byte inside the first tensor whose name begins so; returns where. MachineError when there is none."""
    for part in read_metadata(directory / METADATA).parts:
        if part.name.startswith(of) and (at := _first_byte(directory, part)) is not None:
            with (directory / part.file).open("r+b") as file:
                file.seek(at)
                value = file.read(1)[0]
                file.seek(at)
                file.write(bytes([value ^ 1]))
            return f"{part.file}, byte {at}, of {part.name}"
    raise MachineError("no tensor of a model to change", where=str(directory), next_step="save a checkpoint first")


def drop_shard(directory: Path) -> str:
    """One shard is gone."""
    shard = _shard(directory)
    shard.unlink()
    return shard.name


def cut_shard(directory: Path) -> str:
    """One shard ends early."""
    shard = _shard(directory)
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)
    return shard.name


def drop_metadata(directory: Path) -> str:
    """As after a save that did not end."""
    (directory / METADATA).unlink()
    return METADATA


PLANTS: dict[str, tuple[Callable[[Path], str], CheckpointState, str]] = {
    "flipped-byte": (flip_byte, CheckpointState.DAMAGED, "one flipped byte is called damage"),
    "missing-shard": (drop_shard, CheckpointState.PARTIAL, "a missing shard is called partial"),
    "cut-shard": (cut_shard, CheckpointState.PARTIAL, "a cut shard is called partial"),
    "unfinished": (drop_metadata, CheckpointState.PARTIAL, "a save that did not end is called partial"),
}
"""By name: what is done, what it must be called, and the claim."""


def copy_of(checkpoint: Path, to: Path) -> Path:
    """A copy to break. Raises MachineError."""
    try:
        shutil.copytree(checkpoint, to)
    except OSError as error:
        raise MachineError(f"cannot copy: {error}", where=str(to), next_step="check the disk") from error
    return to


def file_controls(checkpoint: Path, work_dir: Path) -> tuple[Control, ...]:
    """Break copies of a whole checkpoint, and look at them without a manifest, which is harder. Raises MachineError."""
    controls = []
    for name, (plant, expected, claim) in PLANTS.items():
        broken = copy_of(checkpoint, work_dir / name)
        what = plant(broken)
        found = look(broken)
        told = found.state is expected
        detail = f"{what}: called {found.state.value}: {'; '.join(found.problems[:2]) or 'nothing found'}"
        controls.append(
            Control(name=f"checkpoint/{name}", claim=claim, got=Verdict.FAIL if told else Verdict.PASS, detail=detail)
        )
    return tuple(controls)


def _shard(directory: Path) -> Path:
    shards = sorted(directory.glob("*.distcp"))
    if not shards:
        raise MachineError("there is no shard to break", where=str(directory), next_step="save a checkpoint first")
    return shards[-1]


def _first_byte(directory: Path, part: Part) -> int | None:
    """Where the first byte of the tensor lies in its shard; None when the part holds none."""
    with (directory / part.file).open("rb") as file:
        file.seek(part.offset)
        archive = zipfile.ZipFile(io.BytesIO(file.read(part.length)))
        for info in archive.infolist():
            if info.filename.endswith("/data/0") and info.file_size > 0:
                file.seek(part.offset + info.header_offset)
                header = file.read(LOCAL_HEADER_BYTES)
                names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
                return part.offset + info.header_offset + LOCAL_HEADER_BYTES + names
    return None
