"""docs/certify.md names every key of a plan, every measure and every topology, and its example is a valid plan."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import inspect

from hangdrill.certify.plan import load_plan
from hangdrill.model.certify_plan import CertifyPlan, Measure, Topology

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "certify.md").read_text(encoding="utf-8")
OF_A_STACK = {f"checkpoint.stack.{key}" for key in ("name", "python", "env", "image", "mounts")}


def keys(kind: inspect.Type, key: str = "") -> Iterator[str]:
    """Every dotted key of the plan; a table of named tables is one key."""
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for option in options:
        if isinstance(option, inspect.VarTupleType):
            yield from keys(option.item_type, key)
        if isinstance(option, inspect.StructType):
            for field in option.fields:
                name = f"{key}.{field.name}" if key else field.name
                below = list(keys(field.type, name))
                yield from below or [name]


def documented() -> set[str]:
    rows = [row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_every_key_of_a_plan_is_in_the_table_and_nothing_else() -> None:
    known = set(keys(inspect.type_info(CertifyPlan))) - OF_A_STACK | {"checkpoint.stack"}
    wanted = known - {"thresholds"} | {"thresholds.MEASURE.ratio", ".absolute"}
    assert documented() == wanted


def test_every_measure_and_topology_is_named() -> None:
    for word in (*Measure, *Topology):
        assert f"`{word.value}`" in PAGE


def test_the_example_is_a_valid_plan_without_a_warning() -> None:
    found = load_plan(DOCS / "examples/certify.toml", {"HOME": "/home/kim"})
    assert found.warnings == ()
    assert found.plan.checkpoint.stack[0].python == "/home/kim/.cache/hangdrill-stacks/2.13.0/bin/python"
