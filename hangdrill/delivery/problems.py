"""What a store's answer means: one sentence, one mend, and whether trying again can help. Pure."""

import errno
from typing import NamedTuple

__all__ = ["DeliveryProblem", "Meaning", "meaning_of"]

_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs", "abfss": "adlfs",
    "sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "hdfs": "pyarrow", "oci": "ocifs", "oss": "ossfs",
}  # fmt: skip
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this host",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or _SAS_TOKEN",
}
_KEYS |= {"s3a": _KEYS["s3"], "gcs": _KEYS["gs"], "az": _KEYS["abfs"], "abfss": _KEYS["abfs"]}
_REFUSED_CODES = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403")
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "TokenRetrievalError")
_PERMANENT_ERRNO = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR}

_FULL = {errno.ENOSPC, errno.EDQUOT}


class Meaning(NamedTuple):
    """what and mend are for people; again: trying again may help."""

    what: str
    mend: str
    again: bool


class DeliveryProblem(Exception):
    """A problem that is already understood; trying again does not help."""

    def __init__(self, what: str, mend: str) -> None:
        self.what = what
        self.mend = mend
        super().__init__(what)


def meaning_of(error: BaseException, url: str) -> Meaning:
    """Of whatever a store raised. url: the target, for its protocol and bucket."""
    protocol, _, rest = url.partition("://") if "://" in url else ("file", "", url)
    text = _text(error)
    if isinstance(error, DeliveryProblem):
        return Meaning(error.what, error.mend, again=False)
    found = _of_package(error, protocol, text) or _of_credentials(error, protocol, text)
    found = found or _of_place(error, protocol, rest.split("/", 1)[0], text)
    if found is not None:
        return Meaning(*found, again=False)
    kind = type(error).__name__
    is_full = isinstance(error, OSError) and error.errno in _FULL
    mend = "make room there" if is_full else "check the network and the store"
    return Meaning(f"{kind}: {text}" if text else kind, mend, again=True)


def _of_package(error: BaseException, protocol: str, text: str) -> tuple[str, str] | None:
    if isinstance(error, ImportError):
        package = _PACKAGES.get(protocol, f"the fsspec package for {protocol}://")
        mend = "pip install 'hangdrill[s3]'" if package == "s3fs" else f"pip install {package}"
        return f"the package for {protocol}:// is missing: {package}", f"{mend}, beside hangdrill"
    if isinstance(error, ValueError) and "rotocol" in text:
        return (
            f"no file system is known as {protocol}://",
            "check the URL: it begins with s3://, gs://, abfs://, ... in lower case",
        )
    return None


def _of_credentials(error: BaseException, protocol: str, text: str) -> tuple[str, str] | None:
    keys = _KEYS.get(protocol, "the credentials of this store")
    if type(error).__name__ in _NO_CREDENTIALS:
        return "there are no credentials", f"give the collector {keys}"
    if not isinstance(error, PermissionError) and not any(code in text for code in _REFUSED_CODES):
        return None
    if protocol == "file":
        return f"this user may not write there: {text}", "check owner and mode of the directory"
    return f"the store refuses these credentials: {text}", f"check {keys}, and its policy"


def _of_place(error: BaseException, protocol: str, bucket: str, text: str) -> tuple[str, str] | None:
    if isinstance(error, FileNotFoundError) or "NoSuchBucket" in text:
        what = f"there is no bucket or directory {bucket}" if protocol != "file" else f"the directory is gone: {text}"
        return what, "make it, or check the name: hangdrill makes no bucket"
    if isinstance(error, OSError) and error.errno in _PERMANENT_ERRNO:
        return f"it cannot be written: {text}", "check the directory, its mount and its rights"
    return None


def _text(error: BaseException) -> str:
    """One line, not too long."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:300]
