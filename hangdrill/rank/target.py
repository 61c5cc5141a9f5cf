"""Runs the user's program inside this process as `python script.py` or `python -m module` would have run it.

The program sees its own argv, path and `__main__`, and its traceback shows no frame of the agent.
"""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

__all__ = ["Target", "TargetError", "parse_target", "without_agent_frames"]

WORKLOAD = "workload:"


class TargetError(Exception):
    """There is no such script, module or workload; the message names it and what there is."""


@dataclass(frozen=True)
class Target:
    """What to run. module: a dotted name; script: a path; exactly one is set. args: its own arguments."""

    args: tuple[str, ...]
    script: Path | None = None
    module: str = ""

    def run(self) -> None:
        """Run it to its end. Raises whatever it raises, SystemExit included, and TargetError."""
        main, code = self._script() if self.script is not None else self._module()
        sys.argv = [str(main.__file__) if self.module else str(self.script), *self.args]
        sys.modules["__main__"] = main
        exec(code, main.__dict__)

    def _script(self) -> tuple[ModuleType, CodeType]:
        path = Path(self.script or "")
        try:
            source = path.read_bytes()
        except OSError as error:
            raise TargetError(f"{path}: cannot read the script: {error}") from error
        sys.path[0] = str(path.resolve().parent)
        main = _new_main(str(path))
        return main, compile(source, str(path), "exec", dont_inherit=True)

    def _module(self) -> tuple[ModuleType, CodeType]:
        spec = _find(self.module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _find(f"{self.module}.__main__")
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        code = get_code(spec.name) if spec is not None and get_code is not None else None
        if spec is None or code is None:
            raise TargetError(f"no module named {self.module!r} can be run")
        main = _new_main(str(spec.origin))
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
        return main, code


def parse_target(argv: Sequence[str]) -> Target:
    """TARGET [ARGS...], where TARGET is a script, `-m module` or `workload:name`. Raises TargetError."""
    if not argv or (argv[0].startswith("-") and (argv[0] != "-m" or len(argv) < 2)):
        raise TargetError("expected TARGET [ARGS...]: a script, `-m module` or `workload:name`")
    if argv[0] == "-m":
        return Target(args=tuple(argv[2:]), module=argv[1])
    if argv[0].startswith(WORKLOAD):
        from hangdrill.rank.workloads import MODULES

        name = argv[0].removeprefix(WORKLOAD)
        if name not in MODULES:
            raise TargetError(f"no workload is called {name!r}; there are {', '.join(sorted(MODULES))}")
        return Target(args=tuple(argv[1:]), module=MODULES[name])
    return Target(args=tuple(argv[1:]), script=Path(argv[0]))


def without_agent_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first own frame on; unchanged when it has none (the target did not start)."""
    here = str(Path(__file__).parent)
    current = traceback
    while current is not None and _is_launching(current.tb_frame.f_code.co_filename, here):
        current = current.tb_next
    return current or traceback


def _is_launching(filename: str, here: str) -> bool:
    return filename.startswith(here) and not filename.startswith(here + "/workloads")


def _find(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise TargetError(f"cannot import {name!r}: {error}") from error


def _new_main(filename: str) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = filename
    main.__dict__["__builtins__"] = __builtins__
    return main
