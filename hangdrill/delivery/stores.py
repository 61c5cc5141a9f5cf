"""The places that evidence is delivered to, behind one small protocol: put once, read back, look.

Every put is all or nothing under the final name: a local file is linked into place, an object store takes one request,
any other file system gets a temporary name and a rename. s3fs and the like are imported when they are used.
"""

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from hangdrill.delivery.problems import DeliveryProblem
from hangdrill.model.delivery import WriteOnce

__all__ = ["AlreadyThere", "LocalStore", "MovingStore", "ObjectStore", "Store"]

_BLOCK_BYTES = 1 << 20
_READ_BYTES = 8 << 20
_TEMPORARY = ".hangdrill-tmp"


class AlreadyThere(Exception):
    """An object of this name exists."""


class Store(Protocol):
    """A target. Names are below it, with `/`. Everything may raise whatever its file system raises."""

    write_once: WriteOnce

    def url_of(self, name: str) -> str:
        """The object's URL, for people and for `hangdrill diagnose`."""

    def put_new(self, name: str, data: bytes) -> None:
        """Write it whole. AlreadyThere when the name is taken."""

    def digest(self, name: str) -> tuple[int, str] | None:
        """Size and sha256 of the bytes as they are read back; None when there is no such object."""

    def names(self, directory: str) -> list[str]:
        """The last parts of what lies directly in a directory; none when there is no such directory."""

    def look(self) -> None:
        """Raise when the target cannot be reached, without writing to it."""

    def sweep(self, name: str) -> None:
        """Remove what an earlier, killed put of this name left behind. Nobody else may be putting it."""


class LocalStore:
    """A directory of this host: a mounted volume, or file://. Private to its owner, as the evidence is."""

    write_once = WriteOnce.CONDITIONAL

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self._url = url.rstrip("/")

    def url_of(self, name: str) -> str:
        """As the target was named."""
        return f"{self._url}/{name}"

    def put_new(self, name: str, data: bytes) -> None:
        """Temporary name, fsync, link: a link fails where the name is taken, and shows the whole file or none."""
        self.look()
        path = self.root / name
        for level in reversed([path.parent, *path.parent.parents]):
            if level.is_relative_to(self.root):
                level.mkdir(exist_ok=True, mode=0o700)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        try:
            _write(temporary, data)
            try:
                os.link(temporary, path)
            except FileExistsError as error:
                raise AlreadyThere(name) from error
            except OSError:  # a file system without links
                self.write_once = WriteOnce.CHECKED
                if path.exists():
                    raise AlreadyThere(name) from None
                temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(path.parent)

    def digest(self, name: str) -> tuple[int, str] | None:
        """From the disk."""
        try:
            with (self.root / name).open("rb") as file:
                return _digest(iter(lambda: file.read(_BLOCK_BYTES), b""))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, directory: str) -> list[str]:
        """Sorted."""
        try:
            return sorted(path.name for path in (self.root / directory).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def look(self) -> None:
        """Its parent must be there: else the volume is not mounted, and the evidence would land beneath it."""
        if self.root.is_dir():
            if not os.access(self.root, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.root))
            return
        if self.root.exists() and not self.root.is_dir():  # it may have been made just now
            raise DeliveryProblem(f"{self.root} is no directory", "name a directory")
        if self.root.is_symlink() and not self.root.is_dir():
            raise DeliveryProblem(f"{self.root} is a link that leads nowhere", "mount the volume, or mend the link")
        if not self.root.parent.is_dir():
            raise DeliveryProblem(
                f"{self.root.parent} does not exist",
                f"mount the volume, or mkdir -p {self.root.parent}: only the last directory is made",
            )
        if not os.access(self.root.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.root.parent))

    def sweep(self, name: str) -> None:
        """Temporary files of this name."""
        path = self.root / name
        for left in path.parent.glob(f".{path.name}.*{_TEMPORARY}"):
            with contextlib.suppress(OSError):
                left.unlink()


class ObjectStore:
    """An object store behind fsspec, whose put shows the whole object or none."""

    def __init__(self, files: Any, root: str, url: str, *, write_once: WriteOnce) -> None:  # noqa: ANN401 - fsspec has no types
        self.files = files
        self.root = root.rstrip("/")
        self.write_once = write_once
        self._url = url.rstrip("/")

    def url_of(self, name: str) -> str:
        """As the target was named."""
        return f"{self._url}/{name}"

    def put_new(self, name: str, data: bytes) -> None:
        """One put, which the store refuses where it can when the name is taken."""
        path = self.path(name)
        if self.files.exists(path):
            raise AlreadyThere(name)
        try:
            self._put(path, data)
        except FileExistsError as error:
            raise AlreadyThere(name) from error

    def path(self, name: str) -> str:
        """As the file system names it."""
        return f"{self.root}/{name}"

    def _put(self, path: str, data: bytes) -> None:
        try:
            self.files.pipe_file(path, data, mode="create")
        except TypeError:  # an older package: it was looked before, that must do
            self.write_once = WriteOnce.CHECKED
            self.files.pipe_file(path, data)

    def digest(self, name: str) -> tuple[int, str] | None:
        """Read anew: no listing and no block is taken from a cache."""
        path = self.path(name)
        self.files.invalidate_cache()
        try:
            with self.files.open(path, "rb", block_size=_READ_BYTES) as file:
                return _digest(iter(lambda: file.read(_READ_BYTES), b""))
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        """Sorted."""
        self.files.invalidate_cache()
        try:
            found = self.files.ls(self.path(directory), detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def look(self) -> None:
        """A listing of one level."""
        with contextlib.suppress(FileNotFoundError):
            self.files.ls(self.root, detail=False)

    def sweep(self, name: str) -> None:
        """A put that was cut has left nothing."""


class MovingStore(ObjectStore):
    """Any other file system of fsspec (sftp, smb, hdfs, ...): a temporary name, then a rename."""

    def _put(self, path: str, data: bytes) -> None:
        parent, _, last = path.rpartition("/")
        temporary = f"{parent}/.{last}.{secrets.token_hex(4)}{_TEMPORARY}"
        self.files.makedirs(parent, exist_ok=True)
        self.files.pipe_file(temporary, data)
        if self.files.exists(path):
            self.files.rm_file(temporary)
            raise FileExistsError(path)
        self.files.mv(temporary, path)

    def sweep(self, name: str) -> None:
        """Temporary files of this name."""
        parent, _, last = self.path(name).rpartition("/")
        with contextlib.suppress(FileNotFoundError):
            for left in self.files.glob(f"{parent}/.{last}.*{_TEMPORARY}"):
                self.files.rm_file(left)


def _digest(blocks: Iterator[bytes]) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    for block in blocks:
        size += len(block)
        digest.update(block)
    return size, digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
