"""One try of one artifact: put it where nothing is yet, and read it back. Called from several threads."""

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hangdrill.delivery.names import Address
from hangdrill.delivery.problems import DeliveryProblem
from hangdrill.delivery.stores import AlreadyThere, Store
from hangdrill.model.delivery import DeliveredArtifact

__all__ = ["MANIFEST", "Sender"]

MANIFEST = "manifest.json"
_CONFLICT = "another object is there already under this name"
_CONFLICT_MEND = "look whose it is; hangdrill never overwrites: move it away, or deliver to another prefix"


class Sender:
    """Of one evidence directory to one target. store: None until the first try has opened it."""

    def __init__(self, evidence: Path, url: str, address: Address, opener: Callable[[str], Store]) -> None:
        self._evidence = evidence
        self._url = url
        self._address = address
        self._opener = opener
        self._opening = threading.Lock()
        self.store: Store | None = None

    def send(self, artifact: DeliveredArtifact) -> None:
        """Put it and read it back. What is there already with the same bytes is delivered; anything else a conflict."""
        store = self._open()
        name = self._address.name_of(artifact.path)
        wanted = (artifact.bytes, artifact.sha256)
        store.sweep(name)
        found = store.digest(name)
        if found is None:
            data = self._bytes_of(artifact)
            with suppress(AlreadyThere):  # a try that was given up has come through after all, or somebody was quicker
                store.put_new(name, data)
            found = store.digest(name)
            if found is None:
                raise OSError("it was written, and is not there when it is read back")
        if found != wanted:
            raise DeliveryProblem(
                f"{_CONFLICT}: {found[0]} bytes, sha256 {found[1][:12]}..., instead of {wanted[0]} bytes, "
                f"sha256 {wanted[1][:12]}...",
                _CONFLICT_MEND,
            )

    def _bytes_of(self, artifact: DeliveredArtifact) -> bytes:
        source = MANIFEST if artifact.path.startswith("manifest.") else artifact.path
        path = self._evidence / source
        if not path.resolve().is_relative_to(self._evidence.resolve()) or (path.exists() and not path.is_file()):
            raise DeliveryProblem("the manifest names what is no file of the evidence directory", "do not trust it")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DeliveryProblem(
                f"it is gone from the evidence directory: {error.strerror}", "keep others out of that directory"
            ) from error
        if (len(data), hashlib.sha256(data).hexdigest()) != (artifact.bytes, artifact.sha256):
            raise DeliveryProblem(
                "it has changed in the evidence directory since it was collected", "keep others out of that directory"
            )
        return data

    def _open(self) -> Store:
        """Once for all tries: importing s3fs takes a second."""
        with self._opening:
            if self.store is None:
                self.store = self._opener(self._url)
            return self.store
