"""S3 behind s3fs: one conditional PutObject, and the rules by which a bucket deletes.

A dump has at most 512 MB and a PutObject 5 GB, so there is never a multipart upload that a kill could leave behind.
"""

from typing import Any

from hangdrill.delivery.stores import AlreadyThere, ObjectStore
from hangdrill.model.delivery import WriteOnce

__all__ = ["S3Store", "error_code"]

_PROOF_BYTES = 1 << 16
"""Only a small object is sent again to see whether the store refuses it."""
_NOT_KNOWN = frozenset({"NotImplemented", "InvalidArgument", "501"})
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})


class S3Store(ObjectStore):
    """Whether the server honours If-None-Match is seen, not believed: see _prove."""

    def __init__(self, files: Any, root: str, url: str) -> None:  # noqa: ANN401 - s3fs has no types
        super().__init__(files, root, url, write_once=WriteOnce.UNKNOWN)
        self.bucket, self.key_prefix, _ = files.split_path(root)

    def key(self, name: str) -> str:
        """The object's key in the bucket."""
        return f"{self.key_prefix}/{name}".lstrip("/") if self.key_prefix else name

    def put_new(self, name: str, data: bytes) -> None:
        """Looked first, for a server that would ignore the condition; then put on condition."""
        if self.files.exists(self.path(name)):
            raise AlreadyThere(name)
        try:
            self._put_object(name, data, IfNoneMatch="*")
        except Exception as error:
            code = error_code(error)
            if code in _TAKEN or isinstance(error, FileExistsError):
                raise AlreadyThere(name) from error
            if code not in _NOT_KNOWN:
                raise
            self.write_once = WriteOnce.CHECKED
            self._put_object(name, data)
            return
        if self.write_once is WriteOnce.UNKNOWN and len(data) <= _PROOF_BYTES:
            self._prove(name, data)

    def _prove(self, name: str, data: bytes) -> None:
        """Put the same bytes again: a server that honours the condition refuses; another has lost nothing by it."""
        try:
            self._put_object(name, data, IfNoneMatch="*")
        except Exception as error:  # whatever else it is: the object itself is there
            self.write_once = WriteOnce.CONDITIONAL if _is_taken(error) else WriteOnce.UNKNOWN
        else:
            self.write_once = WriteOnce.CHECKED

    def _put_object(self, name: str, data: bytes, **condition: str) -> None:
        self.files.call_s3("put_object", Bucket=self.bucket, Key=self.key(name), Body=data, **condition)

    def look(self) -> None:
        """HeadBucket: neither lists nor writes."""
        self.files.call_s3("head_bucket", Bucket=self.bucket)


def error_code(error: BaseException) -> str:
    """The code of an error of S3, also of one that s3fs has translated; "" when it has none."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _is_taken(error: BaseException) -> bool:
    return error_code(error) in _TAKEN or isinstance(error, FileExistsError)
