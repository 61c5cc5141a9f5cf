"""Reads the entries of a recorder's pickle at the speed of C: by comparing them with entries that were read before.

A training job repeats itself: an entry mostly equals an earlier one byte by byte, except for a few integers (record
and sequence numbers, times). So an entry that the walk (`hangdrill.recorder.pickle_walk`) has read becomes a template:
its size, the places of those integers, and all bytes between. A later entry with the same bytes there is built from
the same opcodes, so its value differs in those integers only, and they are all that has to be decoded. Nothing is
trusted: where no template fits, the walk reads the entry, and where anything is odd (the file is cut, or no recorder
wrote it) there is no answer here and the walk reads the whole file.

Templates outlive a file, because the ranks of a job leave nearly equal files. What a template says of memoized values
is compared with those of each file before it is used there.
"""

from collections.abc import Sequence
from operator import itemgetter
from struct import error
from typing import Any

import msgspec

from hangdrill.model.dump import Operation
from hangdrill.model.table import OperationTable, kind_of
from hangdrill.recorder.dump_shape import ShapeReader
from hangdrill.recorder.entry_layout import MAX_ENTRY_BYTES, Layout, OddEntry
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.memo import Memo
from hangdrill.recorder.pickle_walk import Damaged, walk_part

__all__ = ["MAX_BYTES", "Templates"]

MAX_BYTES = 16 * 1024 * 1024
"""Of a file that is read this way; a dump of 2000 operations has 0.3 MB (3 MB if its stacks were written out)."""
MAX_TEMPLATES = 4096
"""In one process. An entry of each call site, size and state is one; a large model has some hundreds."""
BEGINNING_BYTES = 48
"""An entry begins with its stack, by which the templates of other call sites are passed over."""
MAX_ALIKE = 64
MAX_GROUPS = 1024
MAX_FOLLOWING = 4
"""Templates tried after each; a program that repeats itself needs one, where it branches two."""

_NAMES = ("record_ids", "sequences", "op_ids", "created_ns", "started_ns", "completed_ns")


class Template:
    """An entry that was read before. following: what came after it, the latest first. kinds: what it says, by the name
    and description of its group, which differ from rank to rank where groups are parallel."""

    __slots__ = (
        "constants", "file", "following", "group", "index", "kinds", "pick", "puts", "refs", "size", "unpack", "values"
    )  # fmt: skip

    def __init__(self, layout: Layout, operation: Operation, memo: Memo, row: tuple[Any, ...]) -> None:
        self.kinds = {layout.group_of(memo): kind_of(operation)}
        self.group = layout.group_of
        self.size = layout.size
        self.unpack = layout.unpack
        self.constants = layout.constants
        self.pick = layout.pick(operation)
        if self.pick(row) != _row(operation):
            raise OddEntry
        self.refs = itemgetter(*layout.refs)
        self.values = self.refs(memo.told)
        self.puts = {index: memo.told[index] for index in layout.puts}
        self.following: list[Template] = []
        self.file = -1
        self.index = -1


class Templates:
    """All templates of one thread."""

    def __init__(self) -> None:
        self.files = 0
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.count = 0
        self.known: dict[bytes, list[Template]] = {}
        self.start: list[Template] = []
        self.loose: list[Template] = []

    def read(self, data: bytes, at: int, memo: Memo, reader: ShapeReader) -> tuple[OperationTable, int] | None:
        """The entries from byte `at` on, and the byte of the opcode that ends their list; None where they are odd.

        memo: what the walk has stored so far, to be added to. reader: checks a plain entry and makes it an Operation.
        """
        if self.count > MAX_TEMPLATES:
            self.clear()
        self.files += 1
        try:
            return _File(self, data, memo, reader).read(at)
        except (Damaged, DumpError, error, LookupError, UnicodeDecodeError):
            return None

    def add(self, template: Template, data: bytes, at: int) -> None:
        """Remember a template by how its entry begins."""
        alike = self.known.setdefault(data[at : at + BEGINNING_BYTES], [])
        alike.insert(0, template)
        del alike[MAX_ALIKE:]
        self.count += 1

    def alike(self, data: bytes, at: int) -> Sequence[Template]:
        """Templates of entries that begin like the one at byte `at`."""
        return self.known.get(data[at : at + BEGINNING_BYTES], ())


class _File:
    """The reading of one file."""

    def __init__(self, templates: Templates, data: bytes, memo: Memo, reader: ShapeReader) -> None:
        self.templates = templates
        self.number = templates.files
        self.size = len(data)
        self.data = data + bytes(MAX_ENTRY_BYTES)  # so that every template can be laid over the end
        self.memo = memo
        self.reader = reader
        self.end = self.learned_at = -1
        self.kinds: list[Operation] = []
        self.kind: list[int] = []
        self.numbers: list[int] = []  # those of an operation, of the next, and so on

    def read(self, at: int) -> tuple[OperationTable, int] | None:
        data, number, add_numbers, add_kind = self.data, self.number, self.numbers.extend, self.kind.append
        following = self.templates.start
        while True:
            for template in following:
                row = template.unpack(data, at)
                if row[::2] == template.constants and (template.file == number or self._fits(template)):
                    break
            else:
                if data[at] != 0x7D:
                    break
                found = self._look(at, following) or self._learn(at, following)
                if found is None:
                    at, following = self.end, self.templates.loose
                    continue
                template, row = found, found.unpack(data, at)
            if template.puts and at != self.learned_at:
                self.memo.store(template.puts)
            add_numbers(template.pick(row))
            add_kind(template.index)
            at += template.size
            following = template.following
        if data[at] != 0x65 or at >= self.size or not self.kind or not self.memo.is_unchanged():
            return None
        columns = {name: self.numbers[i :: len(_NAMES)] for i, name in enumerate(_NAMES)}
        if any(min(column) < 0 for name, column in columns.items() if name != "op_ids"):
            return None
        return OperationTable(self.kinds, self.kind, **columns), at

    def _fits(self, template: Template) -> bool:
        """Whether what the template refers to is the same in this file; looked at once a file."""
        if template.refs(self.memo.told) != template.values:
            return False
        group = template.group(self.memo)
        if group not in template.kinds:
            if len(template.kinds) > MAX_GROUPS or not all(type(text) is str for text in group):
                return False
            first = next(iter(template.kinds.values()))
            name, desc = self.reader.group_of(group, "process_group")
            template.kinds[group] = msgspec.structs.replace(first, group_name=name, group_desc=desc)
        template.file = self.number
        template.index = len(self.kinds)
        self.kinds.append(template.kinds[group])
        return True

    def _look(self, at: int, following: list[Template]) -> Template | None:
        """A template that fits here, though it has not come after the one before."""
        for template in self.templates.alike(self.data, at):
            if template.unpack(self.data, at)[::2] == template.constants and (
                template.file == self.number or self._fits(template)
            ):
                _put_first(template, following)
                return template
        return None

    def _learn(self, at: int, following: list[Template]) -> Template | None:
        """Have the walk read the entry, and make a template of it; None where that cannot be: then the operation is
        noted, and `end` is the byte behind it."""
        entry, self.end = walk_part(self.data, at, self.memo)
        operation = self.reader.entry(entry, "")
        try:
            layout = Layout(self.data, at, self.end, self.memo)
            template = Template(layout, operation, self.memo, layout.unpack(self.data, at))
            if not self._fits(template):
                raise OddEntry
        except OddEntry:
            self.kind.append(len(self.kinds))
            self.kinds.append(kind_of(operation))
            times = operation.created_ns, operation.started_ns or 0, operation.completed_ns or 0
            self.numbers += (operation.record_id, operation.sequence, operation.op_id, *times)
            return None
        self.learned_at = at
        self.templates.add(template, self.data, at)
        _put_first(template, following)
        return template


def _put_first(template: Template, following: list[Template]) -> None:
    following.insert(0, template)
    del following[MAX_FOLLOWING:]


def _row(operation: Operation) -> tuple[int, ...]:
    """The columns of an operation as a template picks them."""
    number, started, completed = operation.record_id, operation.started_ns, operation.completed_ns
    times = (number if started is None else started, number if completed is None else completed)
    return (number, operation.sequence, operation.op_id, operation.created_ns, *times)
