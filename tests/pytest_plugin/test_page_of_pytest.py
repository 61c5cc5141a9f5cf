"""The examples of docs/pytest.md run as they stand."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/pytest.md").read_text()


def test_the_examples_of_the_page_run(
    fake_drill: Any, inner: Callable[..., pytest.RunResult], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    pytester.makepyfile(example)
    (pytester.path / "train.py").touch()
    monkeypatch.chdir(pytester.path)
    inner().assert_outcomes(passed=2)
    assert [call["scenario"].fault.targets for call in fake_drill.calls] == [(1,), (0,)]


def test_the_page_lists_the_options(inner: Callable[..., pytest.RunResult]) -> None:
    text = inner("--help").stdout.str()
    for option in re.findall(r"`(--hangdrill-\w+)", PAGE):
        assert option in text
