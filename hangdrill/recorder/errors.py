"""What can be wrong with a file that claims to be a dump. Each is the user's file, so each is a UsageError."""

from hangdrill.model.errors import UsageError

__all__ = ["DamagedDumpError", "DumpError", "UnsafeDumpError"]


class DumpError(UsageError):
    """A file is not a dump that can be read: what, where in it, and what to do next."""


class DamagedDumpError(DumpError):
    """The file begins like a dump, but nothing of it could be saved."""


class UnsafeDumpError(DumpError):
    """The pickle asks for code to be found or run. No recorder writes such a file, so none of it is read."""
