"""`torchrun ... -m hangdrill.rank.canary.script OUT PLACEMENT SCRIPT [ARGS...]`: run a script and count its work.

The script runs as it would without this: torch is imported when the script imports it, so a variable that the script
sets before counts; the interpreter ends as it always does, and the exit status is the script's own. Every rank leaves
`OUT/rank_<r>.<attempt>.json` (the shape of all canary jobs): how many collectives and p2p operations it entered, how
many steps its optimizers made, the peak of its memory, and the class of its first process group. PLACEMENT "wrapped"
counts by wrapped functions also where torch has pre-hooks, so that both sides of a comparison are counted alike.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hangdrill.rank.canary.host_memory import host_peak_bytes
from hangdrill.rank.canary.record import Record
from hangdrill.rank.record import Record as Counts
from hangdrill.rank.target import TargetError, parse_target

if TYPE_CHECKING:
    from hangdrill.rank.groups import GroupBook, Hook, KnownGroup

__all__ = ["Watch", "after_import", "main"]

USAGE = 64
DISTRIBUTED, OPTIMIZERS = "torch.distributed", "torch.optim.optimizer"
WORDS = 3


class Watch:
    """Counts the operations of every process group of this process, and knows what it took."""

    def __init__(self, record: Record, counts: Counts, *, wrapped: bool) -> None:
        self._record, self._counts, self._wrapped = record, counts, wrapped
        self._book: GroupBook | None = None
        self._pid, self._is_over, self._steps = os.getpid(), False, 0

    def install(self) -> None:
        """torch.distributed has just been imported. A torch that cannot be watched is noted, and the script goes on."""
        try:
            self._install()
        except Exception as error:
            self._record.failed["count"] = f"{type(error).__name__}: {error}"

    def _install(self) -> None:
        """Meet every group as it is made."""
        from torch._C import _distributed_c10d

        from hangdrill.rank.groups import GroupBook, counting_hook
        from hangdrill.rank.opnames import OpNames

        members = getattr(_distributed_c10d, "HookOpName", None)
        hooked = members is not None and not self._wrapped
        names = OpNames({name: int(member) for name, member in members.__members__.items()}) if members else OpNames()

        def hooks(group: "KnownGroup") -> "tuple[Hook | None, Hook | None]":
            return counting_hook(self._counts, names, group.slot), None

        self._book = GroupBook(hooks if hooked else lambda group: (None, None), self.save)
        self._book.install()
        self._record.measures["hooked"] = float(hooked)
        if not hooked:
            from hangdrill.rank.wrapped import wrap_functions

            wrap_functions(self._book, hooks, names)

    def install_steps(self) -> None:
        """torch.optim has just been imported: count the steps of every optimizer."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, *_: Any) -> None:
        self._steps += 1

    def save(self) -> None:
        """Write what is known so far."""
        groups = self._book.groups if self._book is not None else []
        pairs = [self._counts.counts(group.slot) for group in groups]
        if self._book is not None and self._book.notes:  # more groups than it has room for
            self._record.failed["count"] = self._book.notes[0]
            self._record.measures.pop("collectives", None)
        if "count" not in self._record.failed:
            self._record.measures["collectives"] = float(sum(collectives for collectives, _ in pairs))
            self._record.measures["p2p"] = float(sum(p2p for _, p2p in pairs))
        self._record.measures["steps"] = float(self._steps)
        self._record.measures["groups"] = float(len(groups))
        torch = sys.modules.get("torch")
        self._record.facts["torch"] = str(getattr(torch, "__version__", ""))
        self._record.facts["backend_class"] = groups[0].backend_class if groups else ""
        self._record.save()

    def finish(self) -> None:
        """The script is over, however it ended: take the hooks off, and write the whole record. Safe to repeat."""
        if self._is_over or os.getpid() != self._pid:
            return  # a forked child, such as a worker of a DataLoader, is not the rank
        self._is_over = True
        if self._book is not None and self._record.measures.get("hooked"):
            self._book.disarm()
        self._record.measures.update(_peaks())
        self._record.doing = ""
        self.save()

    def also_at_os_exit(self) -> None:
        """os._exit ends a process without a `finally`."""
        original = os._exit

        def _exit(status: int) -> None:
            self.finish()
            original(status)

        os._exit = _exit  # type: ignore[assignment]  # it never returns either


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call `then` once, as soon as the module has been imported by whoever imports it first; at once if it has been."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, whose loader calls `then` at its end."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            original = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                original(module)
                self._then()

            loader.exec_module = exec_module
        return spec


def _peaks() -> dict[str, float]:
    """Of the process, without mapped files; of its GPUs, what torch's allocator held at most."""
    found = {"host_peak_bytes": float(host_peak_bytes())}
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found["gpu_peak_bytes"] = float(sum(cuda.max_memory_reserved(index) for index in range(cuda.device_count())))
    return found


def main() -> None:
    """Run the script named on the command line."""
    try:
        if len(sys.argv) <= WORDS:
            raise TargetError("expected OUT PLACEMENT SCRIPT [ARGS...]")
        target = parse_target(sys.argv[WORDS:])
    except TargetError as error:
        print(f"hangdrill.rank.canary.script: {error}", file=sys.stderr)
        raise SystemExit(USAGE) from error
    out, placement = Path(sys.argv[1]), sys.argv[2]
    record = Record.from_environment(out, os.environ)
    counts = Counts(out / f"rank_{record.rank}.{record.attempt}.ops")
    watch = Watch(record, counts, wrapped=placement == "wrapped")
    record.doing = "script"
    record.save()
    after_import(DISTRIBUTED, watch.install)
    after_import(OPTIMIZERS, watch.install_steps)
    watch.also_at_os_exit()
    try:
        target.run()
    finally:
        watch.finish()


if __name__ == "__main__":
    main()
