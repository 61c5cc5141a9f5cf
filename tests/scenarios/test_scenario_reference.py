"""docs/reference/scenario.md lists exactly the keys of the model, with their types and defaults: it cannot drift."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from hangdrill.drill.scenario_file import tomllib, validate
from hangdrill.model.container import Container
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.matrix import Cell, Matrix, MatrixAxes, Where
from hangdrill.model.scenario import Before, Expect, Fault, FaultKind, Incident, Job, Recorder, Scenario, Teardown

PAGE = (Path(__file__).parents[2] / "docs/reference/scenario.md").read_text()
SECTIONS = {
    "The top of the file": Scenario,
    "[job]": Job,
    "[job.kubernetes]": Kubernetes,
    "[job.container]": Container,
    "[fault]": Fault,
    "fault.before": Before,
    "[recorder]": Recorder,
    "[incident]": Incident,
    "[expect]": Expect,
    "[matrix]": MatrixAxes,
    "The layers": Matrix,
    "[[cell]]": Cell,
    "[[leave_out]]": Where,
}
PLAIN = {
    inspect.StrType: "text",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.AnyType: "anything",
}


def type_text(info: inspect.Type) -> str:
    if isinstance(info, inspect.UnionType):
        return " or ".join(type_text(option) for option in info.types if not isinstance(option, inspect.NoneType))
    if isinstance(info, inspect.VarTupleType):
        return f"list of {type_text(info.item_type)}"
    if isinstance(info, inspect.EnumType):
        return "word"
    if isinstance(info, inspect.LiteralType):
        return " or ".join(f"`{word}`" for word in info.values)
    return PLAIN.get(type(info), "table")


def default_text(field: inspect.Field) -> str:
    if field.required:
        return "must be set"
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    value = msgspec.to_builtins(field.default)
    if value is None:
        return "-"
    return "`" + json.dumps(list(value) if isinstance(value, tuple) else value) + "`"


def rows(section: str) -> dict[str, tuple[str, str]]:
    """Key -> type and default, of the table below a heading."""
    heading = f" `{section}`\n" if f" `{section}`\n" in PAGE else f" {section}\n"
    part = re.split(r"^#+ ", PAGE.split(heading)[-1], maxsplit=1, flags=re.MULTILINE)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")
    ]
    return {row[0].strip("`"): (row[1], row[2]) for row in cells if row[0].startswith("`")}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_table_of_the_page_is_the_model(section: str) -> None:
    info = inspect.type_info(SECTIONS[section])
    assert isinstance(info, inspect.StructType)
    assert rows(section) == {field.encode_name: (type_text(field.type), default_text(field)) for field in info.fields}


def test_a_table_with_a_missing_key_is_found_out() -> None:
    assert rows("[job]") != rows("[fault]")


@pytest.mark.parametrize("word", [*FaultKind, *Teardown], ids=lambda word: word.value)
def test_every_fault_and_teardown_is_explained(word: FaultKind | Teardown) -> None:
    assert f"| `{word.value}` |" in PAGE


def test_the_example_of_the_page_is_a_scenario() -> None:
    example = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    assert validate(tomllib.loads(example), name="example", path=None).scenario.expect.expected_culprits == (1,)
