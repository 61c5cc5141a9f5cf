"""Bytes -> RankDump: reads what a flight recorder wrote, safely, of any version, also when it is cut.

This room finds the files, reads them and turns them into frozen values. It does not compare ranks: that is
`hangdrill.diagnosis`. Nothing in a file can run code, exhaust memory or hang the reader.
"""

from hangdrill.recorder.errors import DamagedDumpError, DumpError, UnsafeDumpError
from hangdrill.recorder.evidence import Evidence, read_evidence
from hangdrill.recorder.files import DumpFiles, IgnoredFile, find_dumps
from hangdrill.recorder.reader import parse_dump, read_dump

__all__ = [
    "DamagedDumpError",
    "DumpError",
    "DumpFiles",
    "Evidence",
    "IgnoredFile",
    "UnsafeDumpError",
    "find_dumps",
    "parse_dump",
    "read_dump",
    "read_evidence",
]
