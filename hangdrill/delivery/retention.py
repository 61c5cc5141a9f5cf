"""How long a place keeps evidence, and on whose word: a bucket's rules, this host's cleanup, or nobody's."""

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from hangdrill.delivery.cleanup import CLEANUP, Cleanup, deletions_in
from hangdrill.delivery.lifecycle import kept_in_bucket
from hangdrill.delivery.opening import open_store
from hangdrill.delivery.problems import meaning_of
from hangdrill.delivery.s3 import S3Store
from hangdrill.delivery.stores import LocalStore, Store
from hangdrill.model.delivery import Deletion, KeptPlace

__all__ = ["What", "look_at_place"]

_STAMP = re.compile(r"(\d{8}T\d{6}Z)-")
_MEMORY = frozenset({"tmpfs", "ramfs"})
_LAYERS = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_NETWORK = frozenset((
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "virtiofs", "afs", "pvfs2", "glusterfs",
    "wekafs", "panfs", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs", "fuse.ceph",
))  # fmt: skip
_MOST_JOBS = 200
What: TypeAlias = Literal["delivered", "evidence", "native dumps"]


def look_at_place(
    url: str, what: What, *, cleanup: Cleanup = CLEANUP, now: datetime | None = None, mounts: str | None = None
) -> KeptPlace:
    """What is known of a URL or a directory. Never raises: what cannot be looked at is not told, and why says so.

    mounts: the mount table's text; default: this host's.
    """
    now = now or datetime.now(timezone.utc)
    try:
        store = open_store(url)
        found = _look(store, url, what, now=now, cleanup=cleanup, mounts=mounts)
    except Exception as error:  # a stranger's file system may raise anything
        return KeptPlace(place=url, what=what, told=False, why=meaning_of(error, url).what)
    try:
        return msgspec.structs.replace(found, oldest_ns=_oldest_ns(store))
    except Exception:  # who may not list may still be told the rules
        return found


def _look(store: Store, url: str, what: What, *, now: datetime, cleanup: Cleanup, mounts: str | None) -> KeptPlace:
    if isinstance(store, LocalStore):
        return _local(store.root, url, what, cleanup, mounts)
    if isinstance(store, S3Store):
        return kept_in_bucket(store, url, now=now)
    protocol = url.partition("://")[0]
    return KeptPlace(
        place=url, what=what, told=False, why=f"hangdrill cannot ask {protocol}:// for its rules: look at them yourself"
    )


def _local(root: Path, url: str, what: What, cleanup: Cleanup, mounts: str | None) -> KeptPlace:
    place = root.resolve()  # where a link leads decides who deletes, and what holds it; a rule may name the link
    deletions = tuple(dict.fromkeys((*deletions_in(root, cleanup), *deletions_in(place, cleanup))))
    kind, point = _file_system(place, mounts)
    if kind in _LAYERS:
        gone = Deletion(
            source=f"{kind} on {point}", after_days=None, text="is a container's own layer, and goes with it"
        )
        deletions = (*deletions, gone)
    if kind in _MEMORY:
        gone = Deletion(source=f"{kind} on {point}", after_days=None, text="is in memory, and gone at the next boot")
        deletions = (*deletions, gone)
    if kind in _NETWORK or kind is None:
        why = f"{kind} on {point}: its purge policy is told by nobody here" if kind else "its file system is not known"
        return KeptPlace(place=url, what=what, told=False, why=why, deletions=deletions)
    return KeptPlace(
        place=url,
        what=what,
        told=True,
        why=f"{kind} on {point}, tmpfiles.d and tmpreaper of this host",
        deletions=deletions,
    )


def _file_system(path: Path, mounts: str | None) -> tuple[str | None, str]:
    """Type and mount point of what holds a path."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None, ""
    holding: tuple[str | None, str] = (None, "")
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if f"{path}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(holding[1]):
            holding = (fields[2], point)
    return holding


def _oldest_ns(store: Store) -> int | None:
    """By the time in the names of runs: objects have no time of their own on every store."""
    stamps = [
        found[1]
        for job in store.names("")[:_MOST_JOBS]
        for run in store.names(job)
        if (found := _STAMP.match(run)) is not None
    ]
    if not stamps:
        return None
    oldest = datetime.strptime(min(stamps), "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    return int(oldest.timestamp()) * 1_000_000_000
