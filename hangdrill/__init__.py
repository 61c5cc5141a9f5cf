"""hangdrill proves, before an outage does, that a hung PyTorch job leaves the evidence that names the culprit.

    import hangdrill
    found = hangdrill.diagnose("/path/to/dumps")

Importing this imports nothing else: the rank agent is copied without the rest, and the command's start stays quick.
"""

__version__ = "0.1.0"
__all__ = ["__version__", "diagnose"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hangdrill.incident import diagnose


def __getattr__(name: str) -> object:
    if name == "diagnose":
        from importlib import import_module

        return import_module("hangdrill.incident").diagnose
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
