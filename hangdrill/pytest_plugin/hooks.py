"""The hooks hangdrill offers to other pytest plugins and to conftest.py."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hangdrill.model.run import DrillResult

__all__ = ["pytest_hangdrill_result"]


@pytest.hookspec(historic=False)
def pytest_hangdrill_result(item: pytest.Item, result: "DrillResult", run_dir: Path) -> None:
    """Called once a drill of this item was judged, whatever the verdict, and before the test ends by it.

    item: the scenario, or the test whose `drill` fixture ran it. run_dir: everything the drill left; it stays.
    """
