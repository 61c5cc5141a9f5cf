"""The variables that decide about evidence, as data: what torch reads, under which names, and its defaults.

Read out of torch 2.15.0 itself (headers, Python files, strings of its libraries); what other versions read was not
checked, save where `since` or `until` says so. The first name wins: an older spelling counts only where the newer one
is not set, and torch then warns that it is deprecated.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

import msgspec

__all__ = [
    "BY_NAME", "CHECKED_WITH", "FAMILIES", "VARIABLES", "Kind", "Variable", "flag", "is_rollback", "names_to_ask_for",
    "number", "set_names", "value_of",
]  # fmt: skip

CHECKED_WITH = "2.15.0"
FAMILIES = ("TORCH_NCCL", "TORCH_FR_", "TORCH_FLIGHT", "TORCH_DIST_USE", "TORCH_ELASTIC_")
"""A variable that begins so and is not in the table is one that torch does not read."""

TRUE, FALSE = ("y", "yes", "1", "t", "true"), ("n", "no", "0", "f", "false")


class Kind(Enum):
    """How torch reads the value. A value that does not fit raises, aborts or hangs the rank at its start."""

    INT = "int"
    BOOL = "bool"
    TEXT = "text"


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable. old: earlier spellings that still count. legacy_only: nccl2 and nccl-lazy do not read it."""

    name: str
    does: str
    kind: Kind = Kind.TEXT
    default: str = ""
    old: tuple[str, ...] = ()
    since: str = "not checked"
    until: str = ""
    legacy_only: bool = False


INT, BOOL = Kind.INT, Kind.BOOL

VARIABLES: tuple[Variable, ...] = (
    Variable(
        name="TORCH_FR_BUFFER_SIZE",
        old=("TORCH_NCCL_TRACE_BUFFER_SIZE",),
        kind=INT,
        default="2000",
        does="entries that the recorder keeps in each rank; 0 turns it off",
    ),
    Variable(
        name="TORCH_FR_DUMP_ON_TIMEOUT",
        old=("TORCH_NCCL_DUMP_ON_TIMEOUT",),
        kind=BOOL,
        default="true",
        does="write a dump when an operation times out or fails",
    ),
    Variable(
        name="TORCH_FR_DUMP_TEMP_FILE",
        old=("TORCH_NCCL_DEBUG_INFO_TEMP_FILE",),
        default="$XDG_CACHE_HOME or ~/.cache, then /torch/comm_lib_trace_rank_",
        does="prefix of the dump's name; the rank follows it",
    ),
    Variable(
        name="TORCH_FR_DUMP_DYNAMIC_FILE_NAME",
        kind=BOOL,
        default="false",
        does="leave the rank out of the dump's name",
    ),
    Variable(
        name="TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC",
        old=("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",),
        kind=INT,
        default="15000",
        does="how long one dump may take before it is given up",
    ),
    Variable(
        name="TORCH_FR_CPP_STACK",
        old=("TORCH_NCCL_TRACE_CPP_STACK",),
        kind=BOOL,
        default="false",
        does="record C++ frames too",
    ),
    Variable(name="TORCH_INCLUDE_STACK_TRACE", kind=BOOL, default="true", does="stacks in the dump"),
    Variable(
        name="TORCH_INCLUDE_ONLY_ACTIVE", kind=BOOL, default="false", does="only unfinished operations in the dump"
    ),
    Variable(
        name="TORCH_DIST_USE_NCCL2",
        since="2.14",
        does='exactly "0" makes "nccl" the legacy backend; read once, when a group first asks for "nccl"',
    ),
    Variable(name="TORCH_DIST_INIT_BARRIER", kind=INT, default="0", does="a barrier at the end of init"),
    Variable(name="TORCH_DIST_NAN_CHECK", default="0", does="check inputs for NaN"),
    Variable(name="TORCH_ELASTIC_SHUTDOWN_TIMEOUT", kind=INT, default="30", does="torchrun's wait from TERM to KILL"),
    Variable(name="TORCH_ELASTIC_WORKER_IDENTICAL", default="0", does="skips the exchange of ranks between nodes"),
    Variable(
        name="TORCH_NCCL_ASYNC_ERROR_HANDLING",
        old=("NCCL_ASYNC_ERROR_HANDLING",),
        kind=INT,
        default="3; torchrun sets 1",
        does="what the watchdog does with an error; 0: nothing",
    ),
    Variable(
        name="TORCH_NCCL_BLOCKING_WAIT",
        old=("NCCL_BLOCKING_WAIT",),
        kind=BOOL,
        default="false",
        does="wait() blocks the host until the operation is done",
    ),
    Variable(
        name="TORCH_NCCL_ENABLE_MONITORING",
        kind=BOOL,
        default="true",
        legacy_only=True,
        does="the monitor thread of the legacy watchdog, which writes its dumps",
    ),
    Variable(
        name="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        kind=INT,
        legacy_only=True,
        does="a watchdog that is silent for so long ends the process",
    ),
    Variable(
        name="TORCH_NCCL_COORD_CHECK_MILSEC",
        kind=INT,
        legacy_only=True,
        does="how often a rank looks whether another one asks for dumps",
    ),
    Variable(
        name="TORCH_NCCL_DEBUG_INFO_PIPE_FILE", legacy_only=True, does="a named pipe by which a dump can be asked for"
    ),
    Variable(
        name="TORCH_NCCL_EXTRA_DUMP_ON_EXEC", kind=BOOL, legacy_only=True, does="a dump on an exception as well"
    ),
    Variable(
        name="TORCH_NCCL_DESYNC_DEBUG",
        old=("NCCL_DESYNC_DEBUG",),
        kind=BOOL,
        legacy_only=True,
        does="a report of desynchronised ranks",
    ),
    Variable(
        name="TORCH_NCCL_ENABLE_TIMING",
        old=("NCCL_ENABLE_TIMING",),
        kind=BOOL,
        legacy_only=True,
        does="start events for each operation",
    ),
    Variable(name="TORCH_NCCL_PROPAGATE_ERROR", kind=BOOL, legacy_only=True, does="tells other ranks of an error"),
    Variable(name="TORCH_NCCL_TEARDOWN_ON_TIMEOUT", kind=BOOL, default="false", does="ends the process on a timeout"),
    Variable(name="TORCH_NCCL_RETHROW_CUDA_ERRORS", kind=BOOL, default="true", does="the watchdog throws CUDA errors"),
    *(
        Variable(name=f"TORCH_NCCL_{name}", does="nothing about evidence")
        for name in (
            "BCAST_UNIQUEID", "CUDA_EVENT_CACHE", "HIGH_PRIORITY", "LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", "NAN_CHECK",
            "NONBLOCKING_TIMEOUT", "RANKS_PER_ROOT", "SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING",
            "USE_COMM_NONBLOCKING", "USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
        )
    ),
    Variable(name="TORCH_NCCL2_RECONFIGURE_SHRINK_GROW", does="nothing about evidence"),
)  # fmt: skip

BY_NAME: dict[str, Variable] = {name: each for each in VARIABLES for name in (each.name, *each.old)}
"""Every spelling that torch reads."""


def names_to_ask_for(names: Iterable[str]) -> tuple[str, ...]:
    """Of these, the ones that torch may or may not read: whether it does is looked up in its own files."""
    return tuple(sorted({name for name in names if name.startswith(FAMILIES) or name in BY_NAME}))


def set_names(variable: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The spellings of a variable that are set, the one that counts first."""
    known = BY_NAME[variable]
    yield from (name for name in (known.name, *known.old) if name in environ)


def value_of(variable: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The spelling that counts and its value; ("", "") when none is set."""
    name = next(set_names(variable, environ), "")
    return (name, environ[name]) if name else ("", "")


def number(variable: str, environ: Mapping[str, str], default: int) -> int | None:
    """The value as torch reads it; the default when it is not set, None when it is no number."""
    name, text = value_of(variable, environ)
    try:
        return int(text) if name else default
    except ValueError:
        return None


def flag(variable: str, environ: Mapping[str, str], *, default: bool) -> bool | None:
    """The value as torch reads it; the default when it is not set, None when it is neither true nor false."""
    name, text = value_of(variable, environ)
    if not name:
        return default
    return {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}.get(text.lower())


def is_rollback(environ: Mapping[str, str]) -> bool:
    """Whether "nccl" is the legacy backend: only the exact value "0" does that."""
    return environ.get("TORCH_DIST_USE_NCCL2") == "0"
