"""Every process group of this rank, from the moment it is made: its slot in the record, and the hook that counts.

Groups are met where torch makes them (`_new_process_group_helper`, `_register_pg_in_world`, `split_group`), so that the
hook stands before the group's first operation; what other roads made is found by a scan at each training step.
The hook is measured by benchmarks/hold_point.py: keep it free of allocation.
"""

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed.distributed_c10d as c10d

from hangdrill.rank.opnames import OpNames
from hangdrill.rank.record import HEADER_WORDS, LAST_CODE, LAST_NS, LAST_SLOT, SLOT_NS, SLOT_WORDS, SLOTS, Record

__all__ = ["GroupBook", "KnownGroup", "backend_class", "counting_hook", "replace_function"]

HOOK_ID = 0x4844
"""The agent's id among a group's hooks: "HD"."""

Hook = Callable[[Any], None]


@dataclass(frozen=True)
class KnownGroup:
    """A process group the rank is a member of. ranks are global; pg is gone when it was destroyed."""

    slot: int
    name: str
    desc: str
    ranks: tuple[int, ...]
    backend_class: str
    pg: "weakref.ref[Any]"


def counting_hook(record: Record, names: OpNames, slot: int) -> Hook:
    """The hook of a healthy group: counts and nothing else."""
    base = HEADER_WORDS + slot * SLOT_WORDS
    columns = tuple(base + column for column in names.columns)

    def count(  # the defaults make locals of what every operation needs
        operation: Any,
        *,
        words: memoryview = record.words,
        columns: tuple[int, ...] = columns,
        code_at: int = base + LAST_CODE,
        time_at: int = base + SLOT_NS,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        code = int(operation.name)
        words[columns[code]] += 1
        words[code_at] = code
        words[LAST_SLOT] = slot
        words[time_at] = words[LAST_NS] = now()

    return count


class GroupBook:
    """All groups the rank ever met, by slot, and the hooks on those that live."""

    def __init__(
        self, make_hook: Callable[[KnownGroup], tuple[Hook | None, Hook | None]], changed: Callable[[], None]
    ) -> None:
        """make_hook: gives a new group's pre- and post-hook. changed: called after each new group."""
        self.groups: list[KnownGroup] = []
        self.notes: list[str] = []
        self._make_hook = make_hook
        self._changed = changed
        self._armed = True

    def install(self) -> None:
        """Meet every group as torch makes it."""
        replace_function("_new_process_group_helper", self._around_helper)
        replace_function("split_group", self._around_split)
        if hasattr(c10d, "_register_pg_in_world"):
            replace_function("_register_pg_in_world", self._around_registration)

    def known(self, pg: Any) -> KnownGroup | None:
        """What the book says of a live group."""
        return next((group for group in reversed(self.groups) if group.pg() is pg), None)

    def adopt(self, pg: Any, ranks: Sequence[int] | None) -> None:
        """Give a new group a slot and its hooks. ranks: global; None when torch has to be asked."""
        if not isinstance(pg, c10d.ProcessGroup) or self.known(pg) is not None:
            return
        if len(self.groups) >= SLOTS:
            self.notes.append(f"group {pg.group_name} is not counted: a rank has room for {SLOTS} groups")
            return
        group = KnownGroup(
            slot=len(self.groups),
            name=_text(pg, "group_name"),
            desc=_text(pg, "group_desc"),
            ranks=tuple(ranks) if ranks else _global_ranks(pg),
            backend_class=backend_class(pg),
            pg=weakref.ref(pg),
        )
        self.groups.append(group)
        if self._armed:
            self._register(pg, group)
        self._changed()

    def scan(self) -> None:
        """Meet the groups that came by another road than the patched ones."""
        if len(c10d._world.pg_map) > sum(group.pg() is not None for group in self.groups):
            for pg in list(c10d._world.pg_map):
                self.adopt(pg, None)

    def disarm(self) -> None:
        """Take all hooks off."""
        self._armed = False
        for pg in self._live():
            pg.unregister_pre_hook(HOOK_ID)
            pg.unregister_post_hook(HOOK_ID)

    def rearm(self) -> None:
        """Put them on again; the benchmark goes to and fro."""
        self._armed = True
        for group in self.groups:
            pg = group.pg()
            if pg is not None:
                self._register(pg, group)

    def _live(self) -> list[Any]:
        return [pg for group in self.groups if (pg := group.pg()) is not None]

    def _register(self, pg: Any, group: KnownGroup) -> None:
        before, after = self._make_hook(group)
        if before is not None and hasattr(pg, "register_pre_hook"):
            pg.register_pre_hook(HOOK_ID, before)
        if after is not None and hasattr(pg, "register_post_hook"):
            pg.register_post_hook(HOOK_ID, after)

    def _around_helper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            ranks = args[2] if len(args) > 2 else kwargs.get("global_ranks_in_group")
            self.adopt(made[0] if isinstance(made, tuple) else made, ranks or None)
            return made

        return _new_process_group_helper

    def _around_split(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def split_group(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            self.adopt(made, None)
            return made

        return split_group

    def _around_registration(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _register_pg_in_world(pg: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(pg, *args, **kwargs)
            mapping = kwargs.get("rank_mapping")
            if mapping:  # else `_new_process_group_helper` is under way and knows the members
                self.adopt(pg, tuple(mapping))
            return result

        return _register_pg_in_world


def replace_function(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace one of torch.distributed's functions by make(original), in both modules it is reached from."""
    import torch.distributed as dist

    original = getattr(c10d, name)
    replacement = functools.wraps(original)(make(original))
    for module in (c10d, dist):
        if getattr(module, name, None) is original:
            setattr(module, name, replacement)


def backend_class(pg: Any) -> str:
    """The class that really runs the group's operations: of its accelerator if it has one, else of the CPU."""
    try:
        classes = [type(pg._get_backend(device)).__name__ for device in pg._device_types]
    except (AttributeError, RuntimeError):
        return type(pg).__name__
    others = [name for name in classes if "Gloo" not in name]
    return (others or classes or [type(pg).__name__])[0]


def _text(pg: Any, attribute: str) -> str:
    try:
        return str(getattr(pg, attribute))
    except (AttributeError, RuntimeError):
        return ""


def _global_ranks(pg: Any) -> tuple[int, ...]:
    known = c10d._world.pg_group_ranks.get(pg)
    return tuple(sorted(known, key=known.__getitem__)) if known else tuple(range(pg.size()))
