"""A directory for PYTHONPATH that holds the rank agent and nothing else.

The ranks may run with another interpreter, whose packages must not be mixed with those of the controller's
site-packages (or of a checkout, whose `tests` and `docs` would be importable too).
"""

import importlib.util
from pathlib import Path

from hangdrill.model.errors import InternalError

__all__ = ["prepare_agent_path", "rank_package"]


def prepare_agent_path(directory: Path) -> Path:
    """Make `directory`/hangdrill with the `rank` package linked into it; returns `directory`. Safe to repeat."""
    package = directory / "hangdrill"
    package.mkdir(parents=True, exist_ok=True)
    init = package / "__init__.py"
    if not init.exists():
        init.write_text('"""The part of hangdrill that runs inside a rank."""\n')
    link = package / "rank"
    if not link.is_symlink():
        link.symlink_to(rank_package(), target_is_directory=True)
    return directory


def rank_package() -> Path:
    """Where `hangdrill.rank` lies, found without importing it: it imports torch."""
    spec = importlib.util.find_spec("hangdrill.rank")
    if spec is None or not spec.submodule_search_locations:
        raise InternalError(
            "the package hangdrill.rank is missing",
            next_step="install hangdrill again: the rank agent belongs to it",
        )
    return Path(next(iter(spec.submodule_search_locations))).resolve()
