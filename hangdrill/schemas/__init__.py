"""The JSON schemas as files, shipped in the package. `python -m hangdrill.schemas` writes them anew from the model."""

from importlib.resources import files

__all__ = ["file_name", "read"]


def file_name(name: str) -> str:
    """The file of a schema: "result" -> "result.schema.json"."""
    return f"{name}.schema.json"


def read(name: str) -> str:
    """The shipped text of a schema."""
    return (files(__name__) / file_name(name)).read_text(encoding="utf-8")
