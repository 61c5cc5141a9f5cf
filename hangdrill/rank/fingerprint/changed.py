"""Files that are not what their package installed: gone, of another size or, where a package matters most, of another
hash or added to it. RECORD says what was installed; a package without one, or an editable one, has nothing to compare
with."""

import base64
import hashlib
import os
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from hangdrill.rank.fingerprint.added import added_files
from hangdrill.rank.fingerprint.packages import UNSTABLE, normalised, recorded_files

__all__ = ["changes", "matters"]

SMALL_BYTES = 65536
ADDED = "added"
MOST_NAMED = 20
KERNELS = ("torch", "triton", "pytorch-triton", "nvidia-nccl", "rccl")


def matters(name: str) -> bool:
    """Whether a package's files are compared by their hash too, by its name: what a collective or a kernel runs."""
    return name.startswith(KERNELS)


def changes(hashed: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """By package: `changed_files`, the first of them and how many more, and `changed_digest` over what all of them are
    now. Packages with nothing changed are left out. hashed: names that are compared by hash as well."""
    by_hash, seen, found = frozenset(hashed), set(), {}
    for dist in metadata.distributions():
        name = normalised(dist.metadata["Name"] or "")
        if not name or name in seen:
            continue
        seen.add(name)
        if changed := sorted(_changed(dist, by_hash=name in by_hash or matters(name))):
            text = "\n".join(f"{path} {now}" for path, now in changed)
            found[name] = {
                "changed_files": _named([path for path, _ in changed]),
                "changed_digest": hashlib.sha256(text.encode()).hexdigest()[:16],
            }
    return found


def _named(paths: list[str]) -> list[str]:
    more = len(paths) - MOST_NAMED
    return [*paths[:MOST_NAMED], f"and {more} more"] if more > 0 else paths


def _changed(dist: metadata.Distribution, *, by_hash: bool) -> list[tuple[str, str]]:
    """(path, what it is now) of every file that is not what was installed."""
    home = str(dist.locate_file(""))
    found = []
    for path, digest, size in recorded_files(dist):
        if not digest or UNSTABLE.search(path):
            continue
        file = f"{home}/{path}"
        try:
            now = os.stat(file).st_size  # noqa: PTH116 - tens of thousands of files
            differs = size.isdigit() and now != int(size)
            small = by_hash and (path.endswith(".py") or now <= SMALL_BYTES)
            if not differs and (small or path.endswith(".pth")):  # which runs at every start
                differs = not _same(file, digest)
            if differs:
                found.append((path, _hash(file)))
        except OSError as error:
            found.append((path, error.strerror or "cannot be read"))
    if by_hash:
        found += [(f"{path} ({ADDED})", now) for path, now in added_files(dist)]
    return found


def _same(file: str, digest: str) -> bool:
    algorithm, _, text = digest.partition("=")
    if algorithm not in hashlib.algorithms_available:
        return True
    with open(file, "rb") as opened:  # noqa: PTH123 - tens of thousands of files
        own = hashlib.new(algorithm, opened.read()).digest()
    return base64.urlsafe_b64encode(own).rstrip(b"=").decode() == text.rstrip("=")


def _hash(file: str) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:  # noqa: PTH123 - as above
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
