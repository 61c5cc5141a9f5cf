"""Read constants out of a syntax tree: numbers, names given one value, timedelta(...). Evaluates nothing else."""

import ast
from collections import Counter

__all__ = ["Constants", "constants_of", "is_main_guard", "name_of", "number_of", "seconds_of"]

Constants = dict[str, ast.expr]

UNITS_S = {
    "days": 86_400.0,
    "hours": 3600.0,
    "minutes": 60.0,
    "seconds": 1.0,
    "milliseconds": 1e-3,
    "microseconds": 1e-6,
    "weeks": 604_800.0,
}
POSITIONS = ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")


def constants_of(tree: ast.Module) -> Constants:
    """Names of the module and of its functions that are given a value exactly once in the whole file, and are no
    parameter or import of any function there."""
    nodes = list(ast.walk(tree))
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stored.update(node.arg for node in nodes if isinstance(node, ast.arg))
    stored.update(node.asname or node.name for node in nodes if isinstance(node, ast.alias))
    found: Constants = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and stored[target.id] == 1:
            found[target.id] = value
    return found


def name_of(node: ast.expr) -> str:
    """The last part of a dotted name: "dist.init_process_group" -> "init_process_group"."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def number_of(node: ast.expr, known: Constants, depth: int = 8) -> float | None:
    """A number, a product or sum of numbers, or a name of one."""
    if depth == 0:
        return None
    if isinstance(node, ast.Name) and node.id in known:
        return number_of(known[node.id], known, depth - 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add)):
        left, right = number_of(node.left, known, depth - 1), number_of(node.right, known, depth - 1)
        if left is not None and right is not None:
            return left * right if isinstance(node.op, ast.Mult) else left + right
    return None


def seconds_of(node: ast.expr, known: Constants) -> float | None:
    """timedelta(...) of numbers, or a name of one, in seconds; None when any part is not a constant."""
    node = known.get(node.id, node) if isinstance(node, ast.Name) else node
    if not isinstance(node, ast.Call) or name_of(node.func) != "timedelta":
        return None
    parts = [*zip(POSITIONS, node.args, strict=False), *((word.arg or "", word.value) for word in node.keywords)]
    total_s = 0.0
    for unit, value in parts:
        amount = number_of(value, known)
        if amount is None or unit not in UNITS_S:
            return None
        total_s += amount * UNITS_S[unit]
    return total_s


def is_main_guard(node: ast.stmt) -> bool:
    """if __name__ == "__main__":"""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) and "__main__" in ast.unparse(node.test)
