"""Which store a URL or a path means. fsspec and the store's own package are imported when they are used."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from hangdrill.delivery.s3 import S3Store
from hangdrill.delivery.stores import LocalStore, MovingStore, ObjectStore, Store
from hangdrill.model.delivery import WriteOnce

__all__ = ["is_local", "local_path", "normal_url", "open_store"]

ATOMIC_PUT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "abfss", "memory", "oci", "oss"})
"""Protocols whose put shows the whole object or none."""
CONDITIONAL = frozenset({"memory"})
"""Whose second write is refused by the store itself. S3 is asked, see S3Store; of the others nothing was seen yet."""


def is_local(url: str) -> bool:
    """A plain path or file://."""
    return "://" not in url or url.split("://", 1)[0].lower() in ("file", "local")


def local_path(url: str) -> Path:
    """Of a plain path or file://; absolute."""
    if "://" not in url:
        return Path(url).absolute()
    parts = urlsplit(url)
    return Path(unquote(parts.netloc + parts.path)).absolute()


def normal_url(url: str) -> str:
    """The same target in the same words, from wherever it is named: a plain path becomes absolute."""
    return str(local_path(url)) if "://" not in url else url.rstrip("/")


def open_store(url: str) -> Store:
    """The store of a URL; nothing is written yet. Raises whatever fsspec or the store's package raises."""
    if is_local(url):
        return LocalStore(local_path(url), url if "://" in url else str(local_path(url)))
    from fsspec.core import url_to_fs

    protocol = url.split("://", 1)[0].lower()
    if protocol in ("s3", "s3a"):
        # Without caches: credentials are read anew, and what is not there is not believed to be.
        files, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        return S3Store(files, str(root), url)
    files, root = url_to_fs(url, skip_instance_cache=protocol != "memory")
    kind = WriteOnce.CONDITIONAL if protocol in CONDITIONAL else WriteOnce.CHECKED
    store = ObjectStore if protocol in ATOMIC_PUT else MovingStore
    return store(files, str(root), url, write_once=kind)
