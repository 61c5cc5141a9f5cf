"""Look at a training script by its syntax tree. It is never run, and what is decided at run time stays unknown."""

import ast
from collections.abc import Iterator
from pathlib import Path

from hangdrill.preflight.literals import Constants, constants_of, is_main_guard, name_of, number_of, seconds_of
from hangdrill.preflight.surroundings import Call, DebugServerCall, InitCall, Script

__all__ = ["look_at_script", "read_script"]

MAX_BYTES = 2_000_000
TIMEOUT_AT, DUMP_DIR_AT, INTERVAL_AT = 2, 3, 4
"""Positions of arguments in torch 2.15: init_process_group(backend, init_method, timeout), start_debug_server(port,
worker_port, start_method, dump_dir, dump_interval)."""


def read_script(path: Path) -> Script:
    """The facts of a file; a problem instead where it cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return Script(path=str(path), problem="larger than 2 MB")
        source = path.read_bytes()
    except OSError as error:
        return Script(path=str(path), problem=error.strerror or str(error))
    return look_at_script(source, str(path))


def look_at_script(source: bytes | str, path: str) -> Script:
    """The facts of a source text."""
    try:
        tree = ast.parse(source)
        return _look(tree, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Script(path=path, problem=f"not parsed as Python: {error}")


def _look(tree: ast.Module, path: str) -> Script:
    known = constants_of(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named: dict[str, list[ast.Call]] = {}
    for call in calls:
        named.setdefault(name_of(call.func), []).append(call)
    unguarded = _unguarded(tree)
    has_guard = any(is_main_guard(node) for node in tree.body)
    return Script(
        path=path,
        inits=tuple(_init(call, known) for call in named.get("init_process_group", ())),
        devices=tuple(sorted(_devices(tree, known), key=lambda each: each.line)),
        data_parallel=tuple(Call(line=call.lineno) for call in named.get("DataParallel", ())),
        class_tests=tuple(
            Call(line=call.lineno)
            for call in named.get("isinstance", ())
            if len(call.args) == 2 and _names_old_class(call.args[1])
        ),
        debug_servers=tuple(
            _server(call, known, guarded=has_guard and call not in unguarded)
            for call in named.get("start_debug_server", ())
        ),
        uses_local_rank=any(isinstance(node, ast.Constant) and node.value == "LOCAL_RANK" for node in ast.walk(tree)),
    )


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """The expression of an argument, by keyword or position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position < len(call.args) else None


def _is_open(call: ast.Call) -> bool:
    """The call passes on *args or **kwargs."""
    return any(word.arg is None for word in call.keywords) or any(isinstance(each, ast.Starred) for each in call.args)


def _init(call: ast.Call, known: Constants) -> InitCall:
    is_open = _is_open(call)
    backends, by_gpu = _backends(_argument(call, "backend", 0), known)
    timeout = _argument(call, "timeout", TIMEOUT_AT)
    timeout_s = seconds_of(timeout, known) if timeout is not None else None
    is_none = isinstance(timeout, ast.Constant) and timeout.value is None
    device = any(word.arg == "device_id" for word in call.keywords)
    return InitCall(
        line=call.lineno,
        backends=None if is_open and not backends else backends,
        by_gpu=by_gpu,
        has_device_id=device or (None if is_open else False),
        timeout_s=timeout_s,
        timeout_dynamic=timeout_s is None and ((timeout is not None and not is_none) or is_open),
    )


def _backends(node: ast.expr | None, known: Constants) -> tuple[tuple[str, ...] | None, bool]:
    """The literals that the backend may be, and whether a test for a GPU decides between two."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return (), False
    node = known.get(node.id, node) if isinstance(node, ast.Name) else node
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value.lower(),), False
    if isinstance(node, ast.IfExp):
        first, _ = _backends(node.body, known)
        second, _ = _backends(node.orelse, known)
        if first and second:
            return (*first, *second), "cuda.is_available" in ast.unparse(node.test)
    return None, False


def _devices(tree: ast.Module, known: Constants) -> Iterator[Call]:
    for node in ast.walk(tree):
        index: float | None = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.removeprefix("cuda:")
            index = int(text) if text != node.value and text.isdecimal() else None
        elif isinstance(node, ast.Call):
            index = _index_of_call(node, known)
        if index is not None and isinstance(node, (ast.Constant, ast.Call)):
            yield Call(line=node.lineno, index=int(index))


def _index_of_call(call: ast.Call, known: Constants) -> float | None:
    name = name_of(call.func)
    if name == "set_device" and call.args:
        return number_of(call.args[0], known)
    if name == "device" and len(call.args) == 2:
        return number_of(call.args[1], known)
    return None


def _names_old_class(node: ast.expr) -> bool:
    """ProcessGroupNCCL alone, or in a tuple that does not have ProcessGroupNCCL2."""
    names = {name_of(each) for each in (node.elts if isinstance(node, ast.Tuple) else [node])}
    return "ProcessGroupNCCL" in names and "ProcessGroupNCCL2" not in names


def _server(call: ast.Call, known: Constants, *, guarded: bool) -> DebugServerCall:
    interval = _argument(call, "dump_interval", INTERVAL_AT)
    directory = _argument(call, "dump_dir", DUMP_DIR_AT)
    is_open = _is_open(call)
    no_directory = directory is None or (isinstance(directory, ast.Constant) and directory.value is None)
    missing_s = None if is_open else 60.0
    return DebugServerCall(
        line=call.lineno,
        guarded=guarded,
        interval_s=missing_s if interval is None else number_of(interval, known),
        has_dump_dir=(None if is_open else False) if no_directory else True,
    )


def _unguarded(tree: ast.Module) -> set[ast.Call]:
    """Calls that importing the file makes: at module level, outside a main guard and outside functions."""
    found: set[ast.Call] = set()
    todo: list[ast.AST] = [node for node in tree.body if not is_main_guard(node)]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            found.add(node)
        todo.extend(ast.iter_child_nodes(node))
    return found
