"""Records of a run whose evidence was delivered, kept, and told of; each function changes one thing."""

from typing import Any

from healthy_runs import ENDED_NS, PULLED_NS, START_NS, held_run, mutate, none_run, scenario

from hangdrill.model.delivery import (
    Deletion,
    Delivered,
    DeliveredArtifact,
    Delivery,
    DeliveryState,
    HookCall,
    HookCalls,
    HookKind,
    KeptPlace,
    ObjectFacts,
)
from hangdrill.model.run import RecordedRun
from hangdrill.model.scenario import Incident

URL = "s3://dumps/training"
PREFIX = f"{URL}/ddp/20231114T221320Z-hd-1/host"
MANIFEST = "manifest.json"


def delivered_run(**changes: Any) -> RecordedRun:
    """Everything was delivered and read back."""
    run = held_run(scenario=scenario(recorder={"deliver_to": URL}))
    artifacts = [(item.path.rpartition("/")[2], item.bytes, item.sha256) for item in run.artifacts]
    sent = tuple(
        DeliveredArtifact(
            path=path,
            url=f"{PREFIX}/{path}",
            bytes=size,
            sha256=sha256,
            state=DeliveryState.DELIVERED,
            attempts=1,
            delivered_ns=PULLED_NS,
        )
        for path, size, sha256 in (*artifacts, (MANIFEST, 900, "e" * 64))
    )
    delivery = Delivery(
        url=URL, prefix=PREFIX, job="ddp", run="hd-1", host="host", started_ns=START_NS, complete=True, artifacts=sent
    )
    objects = tuple(ObjectFacts(path=o.path, url=o.url, exists=True, bytes=o.bytes, sha256=o.sha256) for o in sent)
    return mutate(run, delivered=mutate(Delivered(deliveries=(delivery,), objects=objects), **changes))


def with_sent(index: int, **changes: Any) -> RecordedRun:
    """One artifact's delivery changed; -1 is the manifest."""
    run = delivered_run()
    (delivery,) = run.delivered.deliveries
    sent = list(delivery.artifacts)
    sent[index] = mutate(sent[index], **changes)
    return mutate(run, delivered=mutate(run.delivered, deliveries=(mutate(delivery, artifacts=tuple(sent)),)))


def with_object(index: int, **changes: Any) -> RecordedRun:
    """What was found of one object changed; -1 is the manifest's."""
    run = delivered_run()
    objects = list(run.delivered.objects)
    objects[index] = mutate(objects[index], **changes)
    return mutate(run, delivered=mutate(run.delivered, objects=tuple(objects)))


def delivered_others() -> RecordedRun:
    """What was delivered of rank 0 was read back as it was sent, and is not what the manifest lists."""
    run, other = with_sent(0, sha256="f" * 64), with_object(0, sha256="f" * 64)
    return mutate(run, delivered=mutate(run.delivered, objects=other.delivered.objects))


def second_host_without_manifest() -> RecordedRun:
    """Of two hosts the second one's manifest did not come through."""
    run = delivered_run()
    (first,) = run.delivered.deliveries
    return mutate(run, delivered=mutate(run.delivered, deliveries=(first, mutate(first, artifacts=()))))


def undelivered(error: str, mend: str = "") -> RecordedRun:
    """Nothing came through, each artifact with the same reason; so the manifest was never taken on."""
    run = delivered_run()
    (delivery,) = run.delivered.deliveries
    sent = tuple(
        mutate(one, state=DeliveryState.FAILED, last_error=error, mend=mend, delivered_ns=None)
        for one in delivery.artifacts[:-1]
    )
    objects = tuple(ObjectFacts(path=one.path, url=one.url, exists=False) for one in sent)
    changed = mutate(delivery, artifacts=sent, complete=False)
    return mutate(run, delivered=mutate(run.delivered, deliveries=(changed,), objects=objects))


def kept_run(promised_days: float = 30, *, told: bool = True, **changes: Any) -> RecordedRun:
    """A promise, and what is known of the place."""
    place = KeptPlace(place=URL, what="delivered", told=told, why="bucket dumps has no lifecycle rules")
    run = held_run(scenario=scenario(recorder={"deliver_to": URL, "keep_days": promised_days}))
    return mutate(run, delivered=Delivered(kept=(mutate(place, **changes),)))


def rule(after_days: float | None) -> tuple[Deletion, ...]:
    """One that deletes then."""
    return (Deletion(source="bucket dumps, lifecycle rule expire", after_days=after_days, text="deletes objects"),)


def call(kind: HookKind = HookKind.COMMAND, **changes: Any) -> HookCall:
    """A good one."""
    base = HookCall(
        key="k", kind=kind, target="notify.sh", started_ns=PULLED_NS, ended_ns=ENDED_NS, ok=True, tries=1, exit_status=0
    )
    return mutate(base, **changes)


def told_run(*calls: HookCall, incident: Incident | None = None, **changes: Any) -> RecordedRun:
    """These calls of hooks were made for the hang."""
    run = held_run()
    wanted = mutate(run.scenario, incident=incident or Incident(command=("notify.sh",)))
    return mutate(run, scenario=wanted, hook_calls=HookCalls(calls=calls) if calls else None, **changes)


def quiet_run(*calls: HookCall, **changes: Any) -> RecordedRun:
    """A hook, and a job without a hang."""
    run = none_run()
    wanted = mutate(run.scenario, incident=Incident(command=("notify.sh",)))
    return mutate(run, scenario=wanted, hook_calls=HookCalls(calls=calls) if calls else None, **changes)
