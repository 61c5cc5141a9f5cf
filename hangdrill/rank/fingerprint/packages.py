"""The installed distributions, by their own metadata. Nothing is imported."""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["UNSTABLE", "digest_of_all", "normalised", "packages", "recorded_files"]

UNSTABLE = re.compile(r"(\.pyc|\.dist-info/(INSTALLER|REQUESTED|RECORD|direct_url\.json))$|^\.\./|/__editable__")
"""Files that differ between two equal installations: caches, scripts with the path of their Python, notes of pip."""


def packages() -> list[dict[str, str]]:
    """One table a distribution, sorted by name; of two of one name the one that Python imports: the first."""
    found = {}
    for dist in metadata.distributions():
        name = normalised(dist.metadata["Name"] or "")
        if name and name not in found:
            found[name] = {
                "name": name,
                "version": str(dist.version),
                "files_digest": _files_digest(dist),
                "source": _source(dist),
            }
    return [found[name] for name in sorted(found)] + _conda_packages()


def _conda_packages() -> list[dict[str, str]]:
    """Of a conda environment, whose compilers, NCCL and MPI are no Python packages: NAME-VERSION-BUILD.json each."""
    found = []
    for path in sorted((Path(sys.prefix) / "conda-meta").glob("*.json")):
        name, _, rest = path.stem.rpartition("-")[0].rpartition("-")
        if name:
            version = f"{rest} {path.stem.rpartition('-')[2]}"
            found.append({"name": f"conda/{name}", "version": version, "files_digest": "", "source": ""})
    return found


def digest_of_all(tables: Sequence[dict[str, Any]]) -> str:
    """sha256 over every package: name, version, source, files, and what was changed of them since."""
    words = ("version", "source", "files_digest", "changed_digest")
    text = "\n".join(" ".join((t["name"], *(t[word] for word in words if t.get(word)))) for t in tables)
    return hashlib.sha256(text.encode()).hexdigest()


def recorded_files(dist: metadata.Distribution) -> Iterator[tuple[str, str, str]]:
    """(path, "algorithm=hash", size) of each file that the distribution's RECORD names, as text."""
    text = dist.read_text("RECORD") or ""
    for line in text.splitlines():
        path, _, rest = line.rpartition(",")[0].rpartition(",")
        if path:
            yield path.strip('"'), rest, line.rpartition(",")[2]


def normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _files_digest(dist: metadata.Distribution) -> str:
    lines = [f"{path},{digest}" for path, digest, _ in recorded_files(dist) if digest and not UNSTABLE.search(path)]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16] if lines else ""


def _source(dist: metadata.Distribution) -> str:
    """Where it came from, when pip noted that it was no registry (PEP 610)."""
    try:
        noted: Any = json.loads(dist.read_text("direct_url.json") or "null")
    except ValueError:
        return ""
    if not isinstance(noted, dict) or not isinstance(noted.get("url"), str):
        return ""
    url = re.sub(r"//[^/@]*@", "//", noted["url"])
    if isinstance(noted.get("vcs_info"), dict):
        return f"{noted['vcs_info'].get('vcs', 'vcs')}+{url}@{noted['vcs_info'].get('commit_id', '?')}"
    editable = isinstance(noted.get("dir_info"), dict) and noted["dir_info"].get("editable")
    return f"editable:{url}" if editable else url
