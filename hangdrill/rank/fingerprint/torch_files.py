"""torch as it lies on the disk: version, commit and wheel. torch is not imported."""

import ast
import importlib.util
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["torch_files"]


def torch_files() -> tuple[dict[str, Any], list[str]]:
    """The facts of the fingerprint that need no import, and sentences about what could not be read."""
    facts: dict[str, Any] = {}
    unknown: list[str] = []
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError) as error:
        spec = None
        unknown.append(f"torch cannot be looked for: {error}")
    if spec is None or not spec.origin:
        return facts, unknown
    home = Path(spec.origin).parent
    facts.update(_version(home / "version.py", unknown))
    try:
        dist = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        unknown.append(f"torch in {home} was not installed from a wheel")
        return facts, unknown
    facts.setdefault("torch", str(dist.version))
    facts["wheel"] = _wheel(dist)
    return facts, unknown


def _version(path: Path, unknown: list[str]) -> dict[str, Any]:
    """The assignments of torch/version.py, read as text."""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError) as error:
        unknown.append(f"{path} cannot be read: {error}")
        return {}
    values = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
            values[target.id] = node.value.value
    hip, cuda, xpu = values.get("hip"), values.get("cuda"), values.get("xpu")
    facts = {
        "torch": values.get("__version__"),
        "torch_git": values.get("git_version"),
        "cuda": cuda,
        "hip": hip,
        "build": "rocm" if hip else "cuda" if cuda else "xpu" if xpu else "cpu",
    }
    return {name: value for name, value in facts.items() if value}


def _wheel(dist: metadata.Distribution) -> str:
    tags = [line[5:] for line in (dist.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
    return f"torch-{dist.version}-{tags[0]}" + (f" (+{len(tags) - 1} tags)" if tags[1:] else "") if tags else ""
