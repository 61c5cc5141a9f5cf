"""Bytes -> RankDump: reads what a flight recorder wrote, safely, of any version, also when it is cut.

This room finds the files, reads them and turns them into frozen values. It does not compare ranks: that is
`hangdrill.diagnosis`. Nothing in a file can run code, exhaust memory or hang the reader.

The way through the room: `opening` makes a place of a path (`local`, `archives`, `remote`), `files` decides by manifest
or `names` which file is whose, `evidence` has each read (`reader`) and puts all together. A pickle is walked opcode by
opcode (`pickle_walk`) and its plain values are checked (`dump_shape`); of a whole file of torch's own, entries that
equal an earlier one are not walked but compared (`whole_pickle`, `templates`), which is as fast as C and as safe.
"""

from hangdrill.recorder.errors import DamagedDumpError, DumpError, UnsafeDumpError
from hangdrill.recorder.evidence import (
    MAX_WORLD,
    DuplicateRank,
    Each,
    Evidence,
    Outcome,
    merge_evidence,
    read_evidence,
    read_job,
)
from hangdrill.recorder.files import DumpFiles, find_dumps
from hangdrill.recorder.opening import open_place
from hangdrill.recorder.places import DumpJob, IgnoredFile, Place
from hangdrill.recorder.reader import parse_dump, read_dump

__all__ = [
    "MAX_WORLD",
    "DamagedDumpError",
    "DumpError",
    "DumpFiles",
    "DumpJob",
    "DuplicateRank",
    "Each",
    "Evidence",
    "IgnoredFile",
    "Outcome",
    "Place",
    "UnsafeDumpError",
    "find_dumps",
    "merge_evidence",
    "open_place",
    "parse_dump",
    "read_dump",
    "read_evidence",
    "read_job",
]
