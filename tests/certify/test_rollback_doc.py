"""The runbook: what it tells people to type says what it promises, on the real torch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "rollback.md"
SWITCH = "TORCH_DIST_USE_NCCL2"


def before_the_group() -> str:
    """The part of the page's Python that needs no GPU."""
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    return block.split("dist.init_process_group")[0]


@pytest.mark.torchrun
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0", "_create_nccl_process_group"),
        (None, "_create_nccl2_process_group"),
        ("false", "_create_nccl2_process_group"),
        ("00", "_create_nccl2_process_group"),
        ("", "_create_nccl2_process_group"),
    ],
)
def test_the_line_that_is_to_be_typed_tells_a_rolled_back_rank_from_another(value, said):
    environ = {name: text for name, text in os.environ.items() if name != SWITCH}
    environ |= {} if value is None else {SWITCH: value}
    done = subprocess.run(
        [sys.executable, "-c", before_the_group()], env=environ, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == [said]


@pytest.mark.torchrun
@pytest.mark.parametrize(
    ("when", "said"), [("import", "_create_nccl_process_group"), ("look", "_create_nccl2_process_group")]
)
def test_it_is_too_late_once_torch_has_looked_and_not_at_the_import(when, said):
    """What the page's table of mistakes says of a variable that a script sets."""
    look = 'dist.Backend._ensure_backend_registered("nccl")\n'
    script = "import os, torch, torch.distributed as dist\n" + (look if when == "look" else "")
    script += f'os.environ["{SWITCH}"] = "0"\n' + before_the_group()
    environ = {name: text for name, text in os.environ.items() if name != SWITCH}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == [said]


def test_the_plan_in_the_page_is_a_fallback_that_passes():
    from datetime import date

    import msgspec

    from hangdrill.certify.rollback_judge import record_problems
    from hangdrill.model.certify_plan import RollbackPlan

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    block = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    plan = msgspec.convert(tomllib.loads(block)["rollback"], RollbackPlan)
    assert list(record_problems(plan, date(2027, 1, 1))) == []
