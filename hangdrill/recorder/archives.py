"""Dumps inside of a tar or zip. Nothing is extracted: members are read into memory, bounded, one at a time.

So a path with `..`, a link or a device inside of an archive is a name and no more.
"""

import posixpath
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.pickle_walk import MAX_DUMP_BYTES
from hangdrill.recorder.places import MAX_SMALL_BYTES, DumpJob, IgnoredFile, Listing, check_count
from hangdrill.recorder.printable import printable
from hangdrill.recorder.sniff import HEAD_BYTES, Kind, kind_of
from hangdrill.recorder.tar_stream import FREE_BYTES, MAX_RATIO, MAX_TOTAL_BYTES, BadArchive, Member, members
from hangdrill.recorder.zip_directory import check_directory

__all__ = ["ARCHIVES", "TarPlace", "ZipPlace"]

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
_SIDE_FILES = (".json", ".html", ".htm")
"""Manifests, agents' facts and pages are kept while a tar streams by, so that it is not read once for each."""
_SIDE_BYTES = 1024 * 1024
MAX_NAMES_BYTES = 32 * 1024 * 1024
"""Of all names in a tar together."""
_CHUNK = 1024 * 1024


class TarPlace:
    """A .tar, .tar.gz or .tgz: read twice from front to back, once to list it and once for its dumps."""

    single = False

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file = file
        self.where = where
        self._kinds: dict[str, Kind] = {}
        self._small: dict[str, bytes] = {}

    def listing(self) -> Listing:
        """Its plain files."""
        ignored: list[IgnoredFile] = []
        problem = ""
        kept = named = 0
        try:
            for member in members(self.file):
                name = _inside(member.name)
                named += len(name) + 1
                if named > MAX_NAMES_BYTES:
                    raise BadArchive(f"its names are more than {MAX_NAMES_BYTES} bytes")
                if reason := _why_not(name, self._kinds, is_file=member.is_file, size=member.size):
                    if member.is_file or not member.name.endswith("/"):
                        ignored.append(IgnoredFile(path=self.shown(name), reason=reason))
                    continue
                side = name.endswith(_SIDE_FILES) and member.size <= _SIDE_BYTES
                data = member.read(_SIDE_BYTES if side else HEAD_BYTES)
                self._kinds[name] = kind_of(data[:HEAD_BYTES])
                if side and kept + len(data) <= MAX_SMALL_BYTES and _is_side(name, self._kinds[name]):
                    self._small[name] = data
                    kept += len(data)
        except (BadArchive, OSError) as damage:
            problem = str(damage)
        return Listing(names=tuple(sorted(self._kinds)), ignored=tuple(ignored), problem=problem)

    def kind(self, name: str) -> Kind:
        """As it was seen when the archive was listed."""
        return self._kinds.get(name, "unknown")

    def small(self, name: str) -> bytes:
        """As it was kept when the archive was listed."""
        if name not in self._small:
            raise DumpError(
                f"it has more than {_SIDE_BYTES} bytes", where=self.shown(name), next_step="unpack the archive"
            )
        return self._small[name]

    def shown(self, name: str) -> str:
        """archive!member"""
        return printable(f"{self.where}!{name}")

    def jobs(self, wanted: Iterable[tuple[str, int]]) -> Iterator[DumpJob]:
        """In the archive's order; of a name that is there twice, the first."""
        ranks = dict(wanted)
        try:
            for member in members(self.file):
                name = _inside(member.name)
                if member.is_file and name in ranks:
                    yield self._job(name, ranks.pop(name), member)
                if not ranks:
                    return
            reason = "there is no such member"
        except (BadArchive, OSError) as damage:
            reason = str(damage)
        for name, rank in ranks.items():
            yield DumpJob(rank=rank, shown=self.shown(name), error=f"it cannot be read: {reason}")

    def close(self) -> None:
        """Close the archive."""
        self.file.close()

    def _job(self, name: str, rank: int, member: Member) -> DumpJob:
        return DumpJob(rank=rank, shown=self.shown(name), data=member.read(MAX_DUMP_BYTES))


class ZipPlace:
    """A .zip: its directory is read once, its members at will. Raises DumpError when it is none."""

    single = False

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.where = where
        try:
            check_directory(file)
            self.zip = zipfile.ZipFile(file)
        except (BadArchive, zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as problem:
            file.close()
            raise DumpError(
                f"it is no zip that can be read: {problem}", where=where, next_step="pack it again"
            ) from None
        self.file = file
        self.total = 0
        self._infos: dict[str, zipfile.ZipInfo] = {}

    def listing(self) -> Listing:
        """Its plain files."""
        ignored: list[IgnoredFile] = []
        for info in self.zip.infolist():
            if info.filename.endswith("/"):
                continue
            name = _inside(info.filename)
            check_count(len(self._infos) + len(ignored), self.where)
            if reason := _why_unreadable(info) or _why_not(name, self._infos, is_file=True, size=info.file_size):
                ignored.append(IgnoredFile(path=self.shown(name), reason=reason))
            else:
                self._infos[name] = info
        return Listing(names=tuple(sorted(self._infos)), ignored=tuple(ignored))

    def kind(self, name: str) -> Kind:
        """What the member begins like."""
        data, problem = self._read(name, HEAD_BYTES)
        return "unknown" if problem and not data else kind_of(data)

    def small(self, name: str) -> bytes:
        """The whole of a member."""
        data, problem = self._read(name, MAX_SMALL_BYTES)
        if problem:
            raise DumpError(f"it cannot be read: {problem}", where=self.shown(name), next_step="unpack the archive")
        return data

    def shown(self, name: str) -> str:
        """archive!member"""
        return printable(f"{self.where}!{name}")

    def jobs(self, wanted: Iterable[tuple[str, int]]) -> Iterator[DumpJob]:
        """In the order asked for. What was unpacked before damage is handed out, as a dump that is cut."""
        for name, rank in wanted:
            data, problem = self._read(name, MAX_DUMP_BYTES)
            error = f"it cannot be read: {problem}" if problem and not data else ""
            yield DumpJob(rank=rank, shown=self.shown(name), data=data, error=error)

    def close(self) -> None:
        """Close the archive."""
        self.zip.close()
        self.file.close()

    def _read(self, name: str, limit: int) -> tuple[bytes, str]:
        """The first bytes of a member, and what kept it from giving more."""
        parts: list[bytes] = []
        try:
            if name not in self._infos:
                return b"", "there is no such member"
            with self.zip.open(self._infos[name]) as member:
                while limit > 0 and (part := member.read(min(limit, _CHUNK))):
                    parts.append(part)
                    limit -= len(part)
                    self.total += len(part)
                    if self.total > MAX_TOTAL_BYTES:
                        return b"", f"the archive unpacks to more than {MAX_TOTAL_BYTES} bytes"
        except (zipfile.BadZipFile, EOFError, OSError, zlib.error, ValueError, RuntimeError) as damage:
            return b"".join(parts), str(damage) or "it is damaged"
        return b"".join(parts), ""


def _inside(name: str) -> str:
    """The member's name as a path inside of the archive; `..` and a leading slash lead nowhere."""
    return posixpath.normpath("/" + name.replace("\\", "/")).lstrip("/")


def _is_side(name: str, kind: Kind) -> bool:
    return kind == "page" or name.endswith(("manifest.json", ".facts.json"))


def _why_not(name: str, known: Iterable[str], *, is_file: bool, size: int) -> str:
    if not name:
        return "a member without a name"
    if not is_file:
        return "a link, a device or a sparse file, not a plain one"
    if name in known:
        return "a second member of this name"
    if size > MAX_DUMP_BYTES:
        return f"{size} bytes is more than a dump may have ({MAX_DUMP_BYTES})"
    return ""


def _why_unreadable(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
        return "a link or a device, not a plain file"
    if info.flag_bits & 1:
        return "encrypted; unpack it to have it read"
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return "compressed in a way that is not read; pack it with deflate"
    if info.file_size > FREE_BYTES and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        return f"it unpacks to more than {MAX_RATIO} times its size"
    return ""
