"""Which files of a place are whose dumps.

In hangdrill's own evidence directory the manifest says it. Elsewhere the names do; two files that claim one rank are
both kept and the rank is listed as a duplicate. Files that are passed over are listed, each with the reason.
"""

import posixpath
from collections.abc import Iterable

import msgspec

from hangdrill.model.run import ArtifactKind, Manifest
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.names import Claim, claim_of, why_ignored
from hangdrill.recorder.places import IgnoredFile, Listing, Place

__all__ = ["DumpFiles", "ManifestAt", "find_dumps"]

MANIFEST = "manifest.json"


class ManifestAt(msgspec.Struct, frozen=True, kw_only=True):
    """A collector's manifest, and the directory inside of the place that it is about ("" for the place itself)."""

    root: str
    manifest: Manifest

    @property
    def run_root(self) -> str:
        """The run directory, when this is the `evidence` directory of one."""
        return posixpath.dirname(self.root) if posixpath.basename(self.root) == "evidence" else self.root


class DumpFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The dumps of a place, by name inside of it. `files` is keyed by global rank and sorted; more than one file of a
    rank may be right (two roads out of one rank) or a mistake (`duplicates`: two files claim a rank, and nothing says
    why). pages: saved from torch's debug server, each with the dumps of many ranks. lost: (rank, name) of dumps that a
    manifest lists and that are not there. problem: why the place could not be listed to its end."""

    files: dict[int, tuple[str, ...]]
    pages: tuple[str, ...] = ()
    ignored: tuple[IgnoredFile, ...] = ()
    duplicates: tuple[int, ...] = ()
    manifests: tuple[ManifestAt, ...] = ()
    lost: tuple[tuple[int, str], ...] = ()
    problem: str = ""


def find_dumps(place: Place, *, prefix: str | None = None) -> DumpFiles:
    """The dumps of a place. prefix: only names with it, whatever else is there. Raises DumpError."""
    listing = place.listing()
    if place.single:
        return _one_file(place, listing.names[0], prefix)
    manifests = () if prefix is not None else _manifests(place, listing)
    told = _by_manifests(place, listing, manifests)
    inside = {one.run_root for one in manifests}
    names = [name for name in listing.names if not _is_inside(name, inside)]
    found = _by_names(place, names, prefix)
    return DumpFiles(
        files=_merged(told.files, found.files),
        pages=found.pages,
        ignored=(*listing.ignored, *told.ignored, *found.ignored),
        duplicates=tuple(sorted({*found.duplicates, *(told.files.keys() & found.files.keys())})),
        manifests=manifests,
        lost=told.lost,
        problem=listing.problem,
    )


def _one_file(place: Place, name: str, prefix: str | None) -> DumpFiles:
    claim, kind = claim_of(name, prefix), place.kind(name)
    if kind == "page":
        return DumpFiles(files={}, pages=(name,))
    if claim is None:
        what = "the name does not say which rank's dump this is" if kind != "other" else "it is no dump"
        raise DumpError(what, where=place.where, next_step="name a dump that is called fr_<rank>, or give --prefix")
    if kind == "other" and not claim.strong:
        raise DumpError("it is no dump, by its first bytes", where=place.where, next_step="check the path")
    return DumpFiles(files={claim.rank: (name,)})


def _manifests(place: Place, listing: Listing) -> tuple[ManifestAt, ...]:
    """Every manifest of hangdrill's. Raises DumpError when they are of different runs."""
    found = []
    for name in listing.names:
        if posixpath.basename(name) == MANIFEST:
            try:
                manifest = msgspec.json.decode(place.small(name), type=Manifest)
            except (DumpError, msgspec.DecodeError, UnicodeDecodeError):
                continue  # somebody else's
            found.append(ManifestAt(root=posixpath.dirname(name), manifest=manifest))
    runs = {one.manifest.run_id: one.run_root for one in found if one.manifest.run_id}
    if len(runs) > 1:
        some = ", ".join(sorted(runs.values())[:4])
        raise DumpError(f"it holds {len(runs)} runs ({some})", where=place.where, next_step="name one of them")
    return tuple(found)


def _by_manifests(place: Place, listing: Listing, manifests: Iterable[ManifestAt]) -> DumpFiles:
    """Dumps and traces of the last attempt, as the manifests list them."""
    names = set(listing.names)
    files: dict[int, list[str]] = {}
    ignored, lost = [], []
    evidence = [
        (one.root, artifact)
        for one in manifests
        for artifact in one.manifest.artifacts
        if artifact.kind in {ArtifactKind.DUMP, ArtifactKind.TRACE}
    ]
    last = max((artifact.attempt for _, artifact in evidence), default=0)
    for root, artifact in evidence:
        name = posixpath.normpath(posixpath.join(root, artifact.path))
        if not _is_inside(name, {root}) or name.startswith(("/", "../")):
            reason = "the manifest names a file outside its directory"
            ignored.append(IgnoredFile(path=place.shown(name), reason=reason))
        elif artifact.attempt != last:
            reason = f"of attempt {artifact.attempt}, before the restart; the last is {last}"
            ignored.append(IgnoredFile(path=place.shown(name), reason=reason))
        elif name not in names:
            lost.append((artifact.rank, name))
        else:
            files.setdefault(artifact.rank, []).append(name)
    return DumpFiles(
        files={rank: tuple(sorted(set(files[rank]))) for rank in sorted(files)},
        ignored=tuple(sorted(ignored, key=lambda file: file.path)),
        lost=tuple(lost),
    )


def _by_names(place: Place, names: Iterable[str], prefix: str | None) -> DumpFiles:
    claims: list[tuple[str, Claim]] = []
    pages, ignored = [], []
    for name in names:
        claim, reason = _judge(place, name, prefix)
        if claim is not None:
            claims.append((name, claim))
        elif reason:
            ignored.append(IgnoredFile(path=place.shown(name), reason=reason))
        else:
            pages.append(name)
    claims, earlier = _last_attempts(place, claims)
    files: dict[int, list[tuple[str, Claim]]] = {}
    for name, claim in claims:
        files.setdefault(claim.rank, []).append((name, claim))
    return DumpFiles(
        files={rank: tuple(name for name, _ in files[rank]) for rank in sorted(files)},
        pages=tuple(pages),
        ignored=(*ignored, *earlier),
        duplicates=tuple(rank for rank in sorted(files) if not _of_one_process(files[rank])),
    )


def _judge(place: Place, name: str, prefix: str | None) -> tuple[Claim | None, str]:
    """What a file claims, or why it is passed over; neither for a page of the debug server."""
    reason = why_ignored(name)
    if name.endswith((".html", ".htm")) and prefix is None and place.kind(name) == "page":
        return None, ""
    if reason:
        return None, reason
    claim = claim_of(name, prefix)
    if claim is None:
        return None, "its name says no rank" if prefix is None else f"its name has no {prefix}<rank>"
    if not claim.strong and place.kind(name) == "other":
        return None, "neither its name nor its first bytes are a dump's"
    return claim, ""


def _last_attempts(place: Place, claims: list[tuple[str, Claim]]) -> tuple[list[tuple[str, Claim]], list[IgnoredFile]]:
    """Leave out what a restart (or a new quorum of torchft) has made the past."""
    last: dict[str, int] = {}
    for _, claim in claims:
        last[claim.series] = max(last.get(claim.series, 0), claim.attempt)
    kept, earlier = [], []
    for name, claim in claims:
        if claim.attempt == last[claim.series]:
            kept.append((name, claim))
        else:
            reason = f"of {claim.series} {claim.attempt}, before the restart; the last is {last[claim.series]}"
            earlier.append(IgnoredFile(path=place.shown(name), reason=reason))
    return kept, earlier


def _of_one_process(files: list[tuple[str, Claim]]) -> bool:
    """Whether the files of a rank are one, or the roads of one collector."""
    return len(files) == 1 or (
        all(claim.road for _, claim in files) and len({posixpath.dirname(name) for name, _ in files}) == 1
    )


def _is_inside(name: str, folders: Iterable[str]) -> bool:
    return any(not folder or name.startswith(f"{folder}/") for folder in folders)


def _merged(*parts: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    ranks = sorted({rank for part in parts for rank in part})
    return {rank: tuple(name for part in parts for name in part.get(rank, ())) for rank in ranks}
