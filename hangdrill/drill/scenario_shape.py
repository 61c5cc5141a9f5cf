"""The shape of a scenario's tables: unknown keys, unknown words and wrong types, each with the nearest right one.

msgspec says what is wrong with a value; this room adds what the user meant. Rules across keys are in `scenario_checks`.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from hangdrill.model.errors import UsageError

__all__ = ["Problem", "convert", "nearest", "usage_error"]

T = TypeVar("T")

UNKNOWN_KEY = "unknown key"
PLAIN_WORDS = {
    "`object`": "a table", "`array`": "a list", "`str`": "a text", "`int`": "a whole number", "`null`": "nothing",
    "`float`": "a number", "`bool`": "true or false", "`str | array`": "a text or a list",
    "`str | array | null`": "a text or a list",
}  # fmt: skip


class Problem(NamedTuple):
    """One mistake: the dotted key, what is wrong with it, and what to write instead."""

    key: str
    what: str
    next_step: str = ""


def nearest(word: str, right: Sequence[str]) -> str:
    """A sentence that offers the nearest right word, or all of them when none is near."""
    close = difflib.get_close_matches(word.lower(), right, n=1, cutoff=0.5)
    return f"did you mean `{close[0]}`?" if close else f"use one of: {', '.join(right)}"


def usage_error(problems: Sequence[Problem], *, file: str, text: str = "") -> UsageError:
    """All mistakes of one file as one error; line numbers come from the file's text where it is given."""
    places = [_place(file, text, problem.key) for problem in problems]
    if len(problems) == 1:
        return UsageError(problems[0].what, where=places[0], next_step=problems[0].next_step)
    lines = [
        f"  {place}: {problem.what}" + (f" ({problem.next_step})" if problem.next_step else "")
        for place, problem in zip(places, problems, strict=True)
    ]
    return UsageError("\n".join([f"{len(problems)} mistakes", *lines]), where=file, next_step="mend each line above")


def convert(data: Mapping[str, Any], model: type[T]) -> tuple[T | None, list[Problem]]:
    """The value, or every mistake of its shape. Never both."""
    info = inspect.type_info(model)
    problems = list(_walk(data, info, ""))
    if problems:
        return None, _offer_other_tables(problems, info)
    try:
        return msgspec.convert(data, model, strict=True), []
    except msgspec.ValidationError as error:
        return None, [_from_msgspec(str(error))]


def _walk(value: object, info: inspect.Type, key: str) -> Iterator[Problem]:
    """Unknown keys and unknown words anywhere below `value`; wrong types are left to msgspec."""
    if isinstance(info, inspect.UnionType):
        yield from _walk_union(value, info, key)
    elif isinstance(info, inspect.StructType) and isinstance(value, Mapping):
        yield from _walk_struct(value, info, key)
    elif isinstance(info, inspect.DictType) and isinstance(value, Mapping):
        for name, item in value.items():
            yield from _walk(name, info.key_type, _join(key, name))
            yield from _walk(item, info.value_type, _join(key, name))
    elif isinstance(info, inspect.VarTupleType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, info.item_type, f"{key}[{index}]")
    else:
        words = _words(info)
        if words and isinstance(value, str) and value not in words:
            yield Problem(key, f'unknown value "{value}"', nearest(value, words))


def _walk_union(value: object, info: inspect.UnionType, key: str) -> Iterator[Problem]:
    for option in info.types:
        fits = (
            (isinstance(value, list) and isinstance(option, inspect.VarTupleType))
            or (isinstance(value, Mapping) and isinstance(option, inspect.StructType))
            or (isinstance(value, str) and bool(_words(option)))
        )
        if fits:
            yield from _walk(value, option, key)


def _walk_struct(value: Mapping[str, Any], info: inspect.StructType, key: str) -> Iterator[Problem]:
    fields = {field.encode_name: field for field in info.fields}
    for name, item in value.items():
        if name in fields:
            yield from _walk(item, fields[name].type, _join(key, name))
        else:
            yield Problem(_join(key, name), UNKNOWN_KEY, nearest(name, list(fields)))
    for name, field in fields.items():
        if field.required and name not in value:
            yield Problem(_join(key, name), "this key is missing", f"add `{_join(key, name)}`")


def _words(info: inspect.Type) -> list[str]:
    if isinstance(info, inspect.EnumType):
        return [str(member.value) for member in info.cls]
    if isinstance(info, inspect.LiteralType):
        return [str(word) for word in info.values]
    return []


def _offer_other_tables(problems: list[Problem], info: inspect.Type) -> list[Problem]:
    """A key that is right in another table is offered there: `fault.timeout_s` -> `job.timeout_s`."""
    homes: dict[str, str] = {}
    for name in _keys(info, ""):
        homes.setdefault(name.rpartition(".")[2], name)  # the first table that has it: the job's before the hook's

    def offer(problem: Problem) -> Problem:
        home = homes.get(problem.key.rpartition(".")[2])
        found = problem.what == UNKNOWN_KEY and home is not None
        return problem._replace(next_step=f"did you mean `{home}`?") if found else problem

    return [offer(problem) for problem in problems]


def _keys(info: inspect.Type, key: str) -> Iterator[str]:
    options = info.types if isinstance(info, inspect.UnionType) else (info,)
    for option in options:
        if isinstance(option, inspect.StructType):
            for field in option.fields:
                yield _join(key, field.encode_name)
                yield from _keys(field.type, _join(key, field.encode_name))


def _from_msgspec(text: str) -> Problem:
    what, _, path = text.partition(" - at `$")
    for name, plain in PLAIN_WORDS.items():
        what = what.replace(name, plain)
    return Problem(path.strip("`.") or "(top)", what[0].lower() + what[1:])


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _place(file: str, text: str, key: str) -> str:
    line = _line_of(text, key)
    return f"{file}:{line}: {key}" if line else f"{file}: {key}"


def _line_of(text: str, key: str) -> int:
    """The line (from 1) a dotted key stands on, or that of its table; 0 when not found."""
    parts = re.sub(r"\[\d+\]|\[\.\.\.\]", "", key).split(".")
    best, table = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([\w.\-]+)\s*\]+", line):
            table = header[1]
            if table == ".".join(parts):
                return number
        elif name := re.match(r"\s*([\w.\-]+)\s*=", line):
            full = _join(table, name[1]).split(".")
            if full == parts:
                return number
            if full == parts[: len(full)]:
                best = number
    return best
