"""What became of evidence on its way to where people look: the records that delivery, hook and retention leave.

`evidence/delivery.json` and `evidence/incident.json` are written beside the evidence; `delivered.json` in a run
directory is what the controller saw itself. No secret is ever in one of them: see `hangdrill.delivery.secrets`.
"""

from enum import Enum
from typing import Literal

import msgspec

from hangdrill.model.diagnosis import Diagnosis

__all__ = [
    "Deletion",
    "Delivered",
    "DeliveredArtifact",
    "Delivery",
    "DeliveryState",
    "HookCall",
    "HookCalls",
    "HookKind",
    "IncidentNews",
    "KeptPlace",
    "ObjectFacts",
    "WriteOnce",
]


class DeliveryState(Enum):
    """Where one artifact is."""

    PENDING = "pending"
    """Not there yet; the evidence directory still has it, and `hangdrill deliver` goes on."""
    DELIVERED = "delivered"
    """There, and read back with the same size and sha256."""
    FAILED = "failed"
    """Given up: trying again would not help without a change, or was tried often enough."""


class WriteOnce(Enum):
    """How an object is kept from being written twice."""

    CONDITIONAL = "conditional"
    """The store itself refuses a second write (If-None-Match, link, exclusive create)."""
    CHECKED = "checked"
    """Looked first, then written: two writers at the same moment could both write."""
    UNKNOWN = "unknown"
    """Nothing was written yet."""


class DeliveredArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the evidence directory on its way. path: relative to that directory."""

    path: str
    url: str
    bytes: int
    sha256: str
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    last_error: str = ""
    mend: str = ""
    first_try_ns: int | None = None
    delivered_ns: int | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """`evidence/delivery.json`: one host's delivery. complete: all artifacts, and after them the manifest."""

    schema: Literal["hangdrill.delivery/1"] = "hangdrill.delivery/1"
    url: str
    """As the user named the target."""
    prefix: str
    """URL of the directory of this run and host; the objects' names are the artifacts'."""
    job: str
    run: str
    host: str
    started_ns: int
    """When the run began: it is in the prefix, so a later call finds the same place."""
    write_once: WriteOnce = WriteOnce.UNKNOWN
    complete: bool = False
    problem: str = ""
    """Why nothing at all could be delivered."""
    mend: str = ""
    updated_ns: int = 0
    artifacts: tuple[DeliveredArtifact, ...] = ()


class ObjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One object as somebody else than the deliverer read it. exists None: could not be read, error says why."""

    path: str
    url: str
    exists: bool | None
    bytes: int = 0
    sha256: str = ""
    error: str = ""
    looked_ns: int = 0


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that deletes what lies in a place. after_days None: it deletes at a time that nobody can tell."""

    source: str
    """The rule and where it stands: "bucket dumps, lifecycle rule expire-tmp", "/etc/tmpfiles.d/tmp.conf:11"."""
    after_days: float | None
    text: str


class KeptPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of how long a place keeps things. told False: nobody can tell, for the reason in `why`."""

    place: str
    what: Literal["delivered", "evidence", "native dumps"]
    told: bool
    why: str
    deletions: tuple[Deletion, ...] = ()
    locked_days: float | None = None
    """An object lock keeps new objects at least so long."""
    oldest_ns: int | None = None
    """The run level of the oldest evidence there."""


class HookKind(Enum):
    """Which hook."""

    COMMAND = "command"
    WEBHOOK = "webhook"


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a hook. Written before the call (ended_ns None) and again after it, so that none is made twice."""

    key: str
    """Of the incident: the Idempotency-Key of a webhook, HANGDRILL_INCIDENT of a command."""
    kind: HookKind
    target: str
    attempt: int = 0
    """The job's attempt in which it hung."""
    started_ns: int
    ended_ns: int | None = None
    ok: bool = False
    tries: int = 0
    exit_status: int | None = None
    http_status: int | None = None
    timed_out: bool = False
    error: str = ""
    output: str = ""


class HookCalls(msgspec.Struct, frozen=True, kw_only=True):
    """`evidence/incident.json`: every call of a hook that this collector's host made."""

    schema: Literal["hangdrill.incident-calls/1"] = "hangdrill.incident-calls/1"
    calls: tuple[HookCall, ...] = ()


class IncidentNews(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook is told: standard input of a command, body of a webhook. text: one line for a chat."""

    schema: Literal["hangdrill.incident/1"] = "hangdrill.incident/1"
    text: str
    key: str
    job: str
    run_id: str
    host: str
    attempt: int
    noticed_ns: int
    notice: str
    diagnosis: Diagnosis | None
    """Null when the evidence could not be read."""
    evidence: str
    """The evidence directory on that host."""
    delivered_to: str | None
    complete: bool
    """Every artifact was delivered before the call."""
    artifacts: tuple[DeliveredArtifact, ...] = ()


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """`delivered.json` of a run directory: what the controller found when the drill was over.

    deliveries: the records as they were then, for a later `hangdrill deliver` goes on with them. objects None: the
    controller could not look at all, problem says why. kept None: nobody asked.
    """

    schema: Literal["hangdrill.delivered/1"] = "hangdrill.delivered/1"
    deliveries: tuple[Delivery, ...] = ()
    objects: tuple[ObjectFacts, ...] | None = None
    kept: tuple[KeptPlace, ...] | None = None
    problem: str = ""
