"""For each check: records on which it must pass, must fail (the negative controls) and must say "unknown"."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from delivery_cases import (
    call,
    delivered_others,
    delivered_run,
    kept_run,
    quiet_run,
    rule,
    second_host_without_manifest,
    told_run,
    undelivered,
    with_object,
    with_sent,
)
from healthy_runs import (
    CONFIRMED_NS,
    ENDED_NS,
    EVIDENCE,
    PREFIX,
    PULLED_NS,
    SECOND_NS,
    START_NS,
    WORLD,
    diagnosis,
    held_run,
    lose_rank,
    mutate,
    mutate_each,
    native_run,
    no_hang,
    none_run,
    operation,
    restarted_run,
    scenario,
    trace,
    undecided,
    with_agent,
    with_dump,
    with_file,
    without_files,
)

from hangdrill.model.delivery import DeliveryState, HookKind
from hangdrill.model.diagnosis import Basis, Culprit, HangKind
from hangdrill.model.run import Leftover, MemoryFacts, NodeStatus, PullReason, RecordedRun
from hangdrill.model.scenario import FaultKind, Incident, Teardown

Records = Mapping[str, Callable[[], RecordedRun]]


class Cases(msgspec.Struct, frozen=True, kw_only=True):
    """Named records, made when they are needed."""

    passing: Records
    failing: Records
    unknown: Records


def gil_run(rank: int = 1, enqueued: int = 3) -> RecordedRun:
    """The held rank could give a trace only: it holds the GIL."""
    run = held_run()
    return mutate(run, dumps={**run.dumps, rank: (trace(rank, enqueued),)})


def held_before_its_first_operation() -> RecordedRun:
    """Rank 1 is held before operation 1, so its dump is rightly empty."""
    run = with_dump(held_run(), 1, operations=(), status=())
    return with_agent(run, 1, groups=(mutate(run.agents[1].groups[0], collectives=0, last_operation_ns=0),))


def with_operations(run: RecordedRun, rank: int, **changes: Any) -> RecordedRun:
    """All operations of one rank's dump changed."""
    operations = run.dumps[rank][0].operations
    return with_dump(run, rank, operations=tuple(mutate(item, **changes) for item in operations))


def with_count(run: RecordedRun, rank: int, **changes: Any) -> RecordedRun:
    """The agent's count of one rank changed."""
    return with_agent(run, rank, groups=(mutate(run.agents[rank].groups[0], **changes),))


def without_dumps(*ranks: int) -> Callable[[], RecordedRun]:
    """No dump of these ranks could be parsed."""
    return lambda: mutate(held_run(), dumps={rank: d for rank, d in held_run().dumps.items() if rank not in ranks})


def on_gpus(backend_class: str, prefix: str, *, torch: str = "2.15.0+cu132", **job: Any) -> RecordedRun:
    """The held run as this class would have recorded it."""
    run = held_run(scenario=scenario(job=job))
    for rank in WORLD:
        group = mutate(run.agents[rank].groups[0], backend_class=backend_class)
        run = with_agent(run, rank, backend_class=backend_class, torch=torch, groups=(group,))
    return mutate(run, dumps={rank: with_operations(held_run(), rank, backend=prefix).dumps[rank] for rank in WORLD})


def nccl_run(backend_class: str, *, torch: str = "2.15.0+cu132", env: Mapping[str, str] | None = None) -> RecordedRun:
    """backend = "nccl", and what stood behind the name."""
    prefix = "nccl2" if backend_class.endswith("2") else "nccl"
    return on_gpus(backend_class, prefix, torch=torch, backend="nccl", env=env or {})


def by_device(backend_class: str) -> RecordedRun:
    """One backend for the CPU and another for GPUs, and the class that ran the groups."""
    prefix = "gloo" if backend_class.endswith("Gloo") else "nccl2"
    return on_gpus(backend_class, prefix, backend="cpu:gloo,cuda:nccl")


def without_agents() -> RecordedRun:
    """No agent reported."""
    return mutate(held_run(), agents={})


def unconfirmed() -> RecordedRun:
    """The fault never took."""
    return mutate(held_run(), faults=())


def with_artifacts(run: RecordedRun, rank: int, **changes: Any) -> RecordedRun:
    """One rank's artifacts changed."""
    return mutate(run, artifacts=mutate_each(run.artifacts, lambda item: mutate(item, **changes), rank=rank))


def named(*ranks: int) -> RecordedRun:
    """The diagnosis names these ranks."""
    culprits = tuple(Culprit(rank=rank, basis=Basis.OBSERVED, why="") for rank in ranks)
    return mutate(held_run(), diagnosis=mutate(diagnosis(), culprits=culprits))


def with_event(**changes: Any) -> RecordedRun:
    """The journal's end of the job changed."""
    run = held_run()
    return mutate(run, journal=tuple(mutate(event, **changes) for event in run.journal))


def outside(mode: int) -> RecordedRun:
    """torch's own files lie outside the run directory."""
    run = native_run()
    files = tuple(
        mutate(facts, path=f"/var/cache/fr_{facts.rank}", mode=mode) if facts.path.startswith(PREFIX) else facts
        for facts in run.files
    )
    return mutate(run, dump_prefix="/var/cache/fr_", files=files)


OUT_OF_MEMORY = MemoryFacts(
    limit_bytes=1 << 30, kills=2, kills_of_job=1, oom_killed=True, exit_code=137, container_over=True
)


def no_oom_kills() -> Records:
    """What proves no oom-kill, whatever became of the files."""
    unproven = {
        "nobody drove it out of memory": None,
        "the limit was not reached": mutate(OUT_OF_MEMORY, kills=0, kills_of_job=0, oom_killed=False),
        "only torchrun was killed": mutate(OUT_OF_MEMORY, kills=1, kills_of_job=0),
        "the container lived on": mutate(OUT_OF_MEMORY, container_over=False),
        "there is no limit": MemoryFacts(),
    }
    return {
        title: lambda memory=memory: mutate(surviving(Teardown.OOM_KILL), memory=memory)
        for title, memory in unproven.items()
    }


LOST = NodeStatus(node=0, host="host-0", state="running")


def no_host_losses() -> Records:
    """What proves no loss of the last host, whatever became of the files."""
    unproven = {
        "the host ended in good order": (mutate(LOST, state="finished", problem="there is no interface eth0"),),
        "nothing is known of the host": (),
        "another host was lost": (mutate(LOST, node=1),),
    }
    return {
        title: lambda nodes=nodes: mutate(surviving(Teardown.HOST_LOSS), nodes=nodes)
        for title, nodes in unproven.items()
    }


def surviving(teardown: Teardown) -> RecordedRun:
    """The record with this teardown as the last inspection."""
    run = held_run(scenario=scenario(expect={"survives": (teardown,)}))
    return mutate(
        run,
        memory=OUT_OF_MEMORY if teardown is Teardown.OOM_KILL else None,
        nodes=(LOST,) if teardown is Teardown.HOST_LOSS else (),
        files=mutate_each(run.files, lambda facts: mutate(facts, when=teardown.value), when="job-exit"),
    )


def survival_cases(teardown: Teardown) -> Cases:
    """The same for every teardown."""
    when = teardown.value
    return Cases(
        passing={"all files are unchanged": lambda: surviving(teardown)},
        failing={
            "rank 0 is gone": lambda: with_file(surviving(teardown), 0, when, exists=False),
            "rank 3 has other bytes": lambda: with_file(surviving(teardown), 3, when, sha256="f" * 64),
            "rank 1 has another owner": lambda: with_file(surviving(teardown), 1, when, uid=0),
            "rank 2 is open to others": lambda: with_file(surviving(teardown), 2, when, mode=0o644),
            "rank 2 is cut": lambda: with_file(surviving(teardown), 2, when, bytes=10),
        },
        unknown={
            "nobody looked again": lambda: without_files(surviving(teardown), when),
            "nothing was collected": lambda: without_files(surviving(teardown), "collected"),
            **(no_oom_kills() if teardown is Teardown.OOM_KILL else {}),
            **(no_host_losses() if teardown is Teardown.HOST_LOSS else {}),
        },
    )


CASES: dict[str, Cases] = {
    "fault-confirmed": Cases(
        passing={"held": held_run, "no fault": none_run},
        failing={
            "another kind": lambda: mutate(held_run(), faults=(mutate(held_run().faults[0], kind="stop"),)),
            "an innocent rank too": lambda: mutate(
                held_run(), faults=(*held_run().faults, mutate(held_run().faults[0], rank=0))
            ),
            "a fault where none was to be": lambda: none_run(faults=held_run().faults),
        },
        unknown={"no report": unconfirmed, "no fault and no agent": lambda: none_run(agents={})},
    ),
    "agents-agree": Cases(
        passing={"all the same": held_run},
        failing={
            "rank 0 runs another torch": lambda: with_agent(held_run(), 0, torch="2.14.1+cpu"),
            "rank 3 runs another backend": lambda: with_agent(held_run(), 3, backend_class="ProcessGroupNCCL"),
        },
        unknown={
            "no agent": without_agents,
            "rank 2 is silent": lambda: mutate(
                held_run(), agents={r: a for r, a in held_run().agents.items() if r != 2}
            ),
            "rank 0 does not say": lambda: mutate(
                held_run(), agents={r: mutate(a, torch="") for r, a in held_run().agents.items()}
            ),
            "nobody made a process group": lambda: mutate(
                held_run(), agents={r: mutate(a, backend_class="") for r, a in held_run().agents.items()}
            ),
        },
    ),
    "arrival-as-known": Cases(
        passing={
            "the collector brings all": held_run,
            "a stopped rank may be missing": lambda: lose_rank(
                held_run(scenario=scenario(fault={"kind": FaultKind.STOP})), 1
            ),
        },
        failing={
            "the collector loses a rank": lambda: lose_rank(held_run(), 1),
            "gloo dumps by itself": native_run,
        },
        unknown={
            "a backend nobody measured": lambda: mutate(
                native_run(), agents={rank: mutate(a, backend_class="Fancy") for rank, a in native_run().agents.items()}
            ),
            "the fault was never confirmed": unconfirmed,
            "nobody looked": lambda: mutate(held_run(), manifest=None, files=(), artifacts=()),
        },
    ),
    "every-rank-dumped": Cases(
        passing={
            "four of four": held_run,
            "native, four of four": native_run,
            "no hang and no dump": none_run,
            "the rank that left first was pulled at its exit": lambda: with_artifacts(
                held_run(), 1, reason=PullReason.EXIT, pulled_ns=CONFIRMED_NS
            ),
        },
        failing={
            "rank 0 is missing": lambda: lose_rank(held_run(), 0),
            "rank 1 is missing": lambda: lose_rank(held_run(), 1),
            "rank 3 is missing": lambda: lose_rank(held_run(), 3),
            "the collector ended at its start": lambda: mutate(held_run(), manifest=None, artifacts=(), dumps={}),
            "only proof of health, and no hang noticed": lambda: with_artifacts(
                held_run(manifest=mutate(held_run().manifest, noticed_ns=None)), 2, reason=PullReason.EXIT
            ),
            "a hang was noticed where none was": lambda: none_run(
                manifest=mutate(none_run().manifest, noticed_ns=PULLED_NS)
            ),
            "evidence of a hang where none was": lambda: with_artifacts(none_run(), 2, reason=PullReason.STALL),
        },
        unknown={
            "nobody looked": lambda: mutate(lose_rank(held_run(), 1), manifest=None, files=()),
            "the fault was never confirmed": lambda: mutate(lose_rank(held_run(), 1), faults=()),
            "no manifest of a healthy run": lambda: none_run(manifest=None),
        },
    ),
    "arrived-in-time": Cases(
        passing={
            "within the default": held_run,
            "native, by the file's own time": lambda: with_artifacts(
                native_run(), 0, pulled_ns=CONFIRMED_NS + 60 * SECOND_NS
            ),
        },
        failing={
            "rank 0 is late": lambda: with_artifacts(held_run(), 0, pulled_ns=CONFIRMED_NS + 26 * SECOND_NS),
            "a tighter limit": lambda: mutate(held_run(), scenario=scenario(expect={"within_s": 3.5})),
        },
        unknown={
            "never confirmed": unconfirmed,
            "rank 3 never arrived": lambda: lose_rank(held_run(), 3),
            "no fault to measure from": lambda: mutate(
                none_run(), scenario=mutate(none_run().scenario, expect=mutate(none_run().scenario.expect, dumps="all"))
            ),
        },
    ),
    "path-and-name": Cases(
        passing={"collected": held_run, "native": native_run},
        failing={
            "outside the evidence": lambda: with_artifacts(held_run(), 0, path="/tmp/rank_0.dump"),
            "climbs out of it": lambda: with_artifacts(held_run(), 0, path="../rank_0.dump"),
            "two ranks share a file": lambda: with_artifacts(held_run(), 3, path="rank_2.dump"),
            "not on the disk": lambda: with_file(held_run(), 1, "collected", exists=False),
            "no native file of that name": lambda: mutate(
                native_run(),
                files=mutate_each(
                    native_run().files, lambda facts: mutate(facts, exists=False), path=f"{PREFIX}2", when="collected"
                ),
            ),
        },
        unknown={
            "not inspected": lambda: without_files(held_run(), "collected"),
            "native file not inspected": lambda: mutate(
                native_run(), files=tuple(f for f in native_run().files if f.path != f"{PREFIX}2")
            ),
            "rank 1 never arrived": lambda: lose_rank(held_run(), 1),
        },
    ),
    "owner-and-mode": Cases(
        passing={
            "private": held_run,
            "torch's 0644 inside the run directory": native_run,
            "outside, but private": lambda: outside(0o600),
        },
        failing={
            "readable by others": lambda: with_file(held_run(), 0, "collected", mode=0o644),
            "writable by the group": lambda: with_file(held_run(), 3, "collected", mode=0o620),
            "another owner": lambda: with_file(held_run(), 1, "collected", uid=0),
            "torch's 0644 outside": lambda: outside(0o644),
        },
        unknown={"not inspected": lambda: without_files(held_run(), "collected")},
    ),
    "size": Cases(
        passing={"two kilobytes": held_run},
        failing={
            "empty": lambda: with_file(held_run(), 0, "collected", bytes=0),
            "larger than the buffer": lambda: with_file(held_run(), 3, "collected", bytes=64 * 1024 * 1024),
            "small buffer": lambda: with_file(
                mutate(held_run(), scenario=scenario(recorder={"buffer_size": 1})), 2, "collected", bytes=81 * 1024
            ),
        },
        unknown={
            "not inspected": lambda: without_files(held_run(), "collected"),
            "rank 1 never arrived": lambda: lose_rank(held_run(), 1),
        },
    ),
    "fresh": Cases(
        passing={"operations of this run": held_run, "pulled alive without an operation": gil_run},
        failing={
            "an hour old": lambda: with_operations(held_run(), 0, created_ns=START_NS - 3600 * SECOND_NS),
            "older than the attempt": lambda: with_operations(held_run(), 3, created_ns=START_NS - SECOND_NS),
            "from the future": lambda: with_operations(held_run(), 2, created_ns=ENDED_NS + 60 * SECOND_NS),
            "a stale file beside a good one": lambda: mutate(
                held_run(),
                dumps={
                    **held_run().dumps,
                    2: (
                        held_run().dumps[2][0],
                        mutate(
                            held_run().dumps[2][0],
                            path=f"{PREFIX}2",
                            operations=(operation(1, retired=True, created_ns=START_NS - 3600 * SECOND_NS),),
                        ),
                    ),
                },
            ),
        },
        unknown={
            "nothing parses": without_dumps(1),
            "a file without an operation": lambda: with_artifacts(
                with_dump(held_run(), 1, operations=()), 1, road="native"
            ),
            "after the end, by a clock that nobody knows": lambda: mutate(
                with_operations(held_run(), 2, created_ns=ENDED_NS + 60 * SECOND_NS), clocks=()
            ),
            "before the run, and no agent to say when its rank began": lambda: mutate(
                with_operations(held_run(), 2, created_ns=START_NS - 60 * SECOND_NS), clocks=(), agents={}
            ),
        },
    ),
    "own-dump": Cases(
        passing={
            "the agent's own times": held_run,
            "a trace without a history": gil_run,
            "p2p went between, so the time is not known": lambda: with_count(
                held_run(), 2, p2p=3, last_operation_ns=CONFIRMED_NS + 60 * SECOND_NS
            ),
            "gloo names the members of another rank's group, made last": lambda: with_dump(
                held_run(), 2, groups=(mutate(held_run().dumps[2][0].groups[0], name="", ranks=(1, 3)),)
            ),
            "the rank went on after the pull": lambda: with_count(
                held_run(), 1, collectives=9, last_operation_ns=PULLED_NS + SECOND_NS
            ),
        },
        failing={
            "another job's, begun later": lambda: with_operations(held_run(), 0, created_ns=PULLED_NS - SECOND_NS),
            "another job's, begun earlier": lambda: with_operations(held_run(), 3, created_ns=START_NS + 2 * SECOND_NS),
            "another job's of the held rank, which went on when it was released": lambda: with_count(
                with_operations(held_run(), 1, created_ns=PULLED_NS - SECOND_NS),
                1,
                collectives=4,
                last_operation_ns=PULLED_NS,
            ),
            "another world": lambda: with_dump(
                held_run(), 2, groups=(mutate(held_run().dumps[2][0].groups[0], ranks=(0, 1, 2, 3, 4, 5)),)
            ),
            "a group that has this name and other members": lambda: with_dump(
                held_run(), 2, groups=(mutate(held_run().dumps[2][0].groups[0], ranks=(0, 2)),)
            ),
        },
        unknown={
            "nothing parses": without_dumps(1),
            "no agent": without_agents,
            "a stale file": lambda: with_operations(held_run(), 0, created_ns=START_NS - 3600 * SECOND_NS),
        },
    ),
    "parses": Cases(
        passing={"format 2.10": held_run, "format 2.9": lambda: with_dump(held_run(), 0, version=(2, 9))},
        failing={
            "unreadable": lambda: mutate(held_run(), unreadable={0: ("rank_0.dump: not a dump",)}),
            "cut": lambda: with_dump(held_run(), 3, salvaged=True, cut_at_byte=812),
            "format 3.0": lambda: with_dump(held_run(), 1, version=(3, 0)),
            "format 1.9": lambda: with_dump(held_run(), 1, version=(1, 9)),
            "format 2.11": lambda: with_dump(held_run(), 1, version=(2, 11)),
        },
        unknown={"no dump of rank 2": without_dumps(2)},
    ),
    "has-entries": Cases(
        passing={
            "full": held_run,
            "only pg_status": gil_run,
            "held before its first operation": held_before_its_first_operation,
        },
        failing={
            "rank 0 empty": lambda: with_dump(held_run(), 0, operations=()),
            "rank 1 empty without an agent": lambda: mutate(with_dump(held_run(), 1, operations=()), agents={}),
            "a trace with nothing": lambda: gil_run(enqueued=-1),
        },
        unknown={
            "no dump of rank 3": without_dumps(3),
            "empty, and the job never came to the fault": lambda: with_dump(
                mutate(held_run(), faults=(), agents={}), 0, operations=()
            ),
        },
    ),
    "backend": Cases(
        passing={
            "gloo": held_run,
            "only pg_status": gil_run,
            "held before its first operation": held_before_its_first_operation,
            "a backend from out of the tree": lambda: mutate(
                held_run(scenario=scenario(job={"backend": "fancy"})),
                agents={
                    rank: mutate(
                        facts,
                        backend_requested="fancy",
                        backend_class="Fancy",
                        groups=(mutate(facts.groups[0], backend_class=""),),
                    )
                    for rank, facts in held_run().agents.items()
                },
                dumps={rank: with_operations(held_run(), rank, backend="fancy").dumps[rank] for rank in WORLD},
            ),
            "a choice by device": lambda: by_device("ProcessGroupNCCL2"),
            "nccl as torch 2.15 means it": lambda: nccl_run("ProcessGroupNCCL2"),
            "nccl rolled back as asked": lambda: nccl_run("ProcessGroupNCCL", env={"TORCH_DIST_USE_NCCL2": "0"}),
            "nccl before there was another": lambda: nccl_run("ProcessGroupNCCL", torch="2.11.0+cu130"),
        },
        failing={
            "the half for GPUs is missing": lambda: by_device("ProcessGroupGloo"),
            "nccl rolled back behind the scenario's back": lambda: nccl_run("ProcessGroupNCCL"),
            "asked to roll back, and not rolled back": lambda: nccl_run(
                "ProcessGroupNCCL2", env={"TORCH_DIST_USE_NCCL2": "0"}
            ),
            "rolled back": lambda: mutate(held_run(), scenario=scenario(job={"backend": "nccl2"})),
            "another backend's dump": lambda: with_operations(held_run(), 0, backend="nccl"),
        },
        unknown={
            "no agent": without_agents,
            "no dump of rank 0": without_dumps(0),
            "empty without a status": lambda: with_dump(held_run(), 3, operations=(), status=()),
        },
    ),
    "sequence-ids": Cases(
        passing={
            "equal": held_run,
            "by pg_status": gil_run,
            "went on after the pull": lambda: with_count(
                held_run(), 1, collectives=6, last_operation_ns=PULLED_NS + SECOND_NS
            ),
            "nothing entered": held_before_its_first_operation,
            "p2p is not compared": lambda: with_count(held_run(), 0, p2p=7),
        },
        failing={
            "rank 0 lost one": lambda: with_dump(
                held_run(), 0, operations=tuple(operation(n, retired=True) for n in (1, 2, 3))
            ),
            "rank 3 has one too many": lambda: with_count(held_run(), 3, collectives=3),
            "ahead of an agent that went on": lambda: with_count(
                held_run(), 3, collectives=3, last_operation_ns=PULLED_NS + SECOND_NS
            ),
            "a group that the agent never saw": lambda: with_operations(held_run(), 2, group_name="7"),
            "by pg_status": lambda: gil_run(enqueued=2),
        },
        unknown={
            "no agent": without_agents,
            "no dump of rank 1": without_dumps(1),
            "a trace without a status": lambda: with_dump(gil_run(), 1, status=()),
            "a trace, and p2p in the group": lambda: with_count(gil_run(), 1, p2p=2),
            "a trace, and no default group": lambda: with_count(gil_run(), 1, name="3", desc="mesh_tp"),
        },
    ),
    "window": Cases(
        passing={
            "three before the fourth": held_run,
            "all there were": lambda: with_count(
                with_dump(held_run(), 0, operations=(operation(3, retired=True), operation(4, retired=False))),
                0,
                collectives=2,
            ),
        },
        failing={
            "two of three": lambda: with_dump(
                held_run(), 0, operations=tuple(operation(n, retired=n < 4) for n in (2, 3, 4))
            ),
            "not the stuck one": lambda: with_dump(
                held_run(), 3, operations=tuple(operation(n, retired=True) for n in (1, 2, 3))
            ),
        },
        unknown={
            "no diagnosis": lambda: mutate(held_run(), diagnosis=None),
            "nothing is stuck": lambda: mutate(held_run(), diagnosis=undecided()),
            "no dump of rank 2": without_dumps(2),
            "nobody waits": lambda: mutate(
                held_run(), diagnosis=mutate(diagnosis(), stuck=mutate(diagnosis().stuck, waiting=()))
            ),
            "nobody counted": lambda: mutate(
                with_dump(held_run(), 0, operations=(operation(4, retired=False),)), agents={}
            ),
        },
    ),
    "hash": Cases(
        passing={"equal": held_run},
        failing={
            "rank 0 was changed": lambda: with_file(held_run(), 0, "collected", sha256="f" * 64),
            "rank 3 is gone": lambda: with_file(held_run(), 3, "collected", exists=False),
        },
        unknown={
            "not inspected": lambda: without_files(held_run(), "collected"),
            "no sha256 in the manifest": lambda: with_artifacts(held_run(), 2, sha256=""),
            "rank 1 left nothing": lambda: lose_rank(held_run(), 1),
        },
    ),
    "restart-kept": Cases(
        passing={"both attempts are there": restarted_run},
        failing={
            "rank 0 was overwritten": lambda: mutate(
                restarted_run(),
                files=mutate_each(
                    restarted_run().files,
                    lambda facts: mutate(facts, sha256="f" * 64),
                    path=f"{EVIDENCE}/rank_0.dump",
                ),
            ),
            "rank 3 is gone": lambda: mutate(
                restarted_run(),
                files=mutate_each(
                    restarted_run().files, lambda facts: mutate(facts, exists=False), path=f"{EVIDENCE}/rank_3.dump"
                ),
            ),
            "the first attempt left nothing": lambda: mutate(restarted_run(), artifacts=restarted_run().artifacts[4:]),
        },
        unknown={
            "never restarted": lambda: held_run(scenario=scenario(job={"max_restarts": 1})),
            "not inspected after the restart": lambda: without_files(
                without_files(restarted_run(), "restart"), "job-exit"
            ),
        },
    ),
    **{f"survives-{item.value}": survival_cases(item) for item in Teardown if item is not Teardown.RESTART},
    "delivered": Cases(
        passing={"all read back": delivered_run},
        failing={
            "the bucket does not answer": lambda: undelivered("no answer within 10 s"),
            "wrong key": lambda: undelivered("the store refuses these credentials"),
            "rank 0's was given up": lambda: with_sent(0, state=DeliveryState.FAILED, last_error="no space"),
            "one is left in the spool": lambda: with_sent(3, state=DeliveryState.PENDING),
            "another object was there": lambda: with_sent(1, state=DeliveryState.FAILED, last_error="another object"),
            "an object is gone": lambda: with_object(2, exists=False),
            "an object was changed": lambda: with_object(0, sha256="f" * 64),
            "an object was cut": lambda: with_object(3, bytes=10),
            "the manifest is gone": lambda: with_object(-1, exists=False),
            "never taken on": lambda: with_sent(0, sha256="f" * 64),
            "another file than the manifest's": delivered_others,
            "the second host's manifest is missing": second_host_without_manifest,
        },
        unknown={
            "nobody recorded a delivery": lambda: mutate(delivered_run(), delivered=None),
            "nobody read back": lambda: delivered_run(objects=None, problem="no answer within 15 s"),
            "could not be read back": lambda: with_object(0, exists=None, error="no answer in time"),
            "nothing was collected": lambda: mutate(delivered_run(), artifacts=()),
        },
    ),
    "retained": Cases(
        passing={
            "no rule": kept_run,
            "a later rule": lambda: kept_run(deletions=rule(90)),
            "exactly as long": lambda: kept_run(deletions=rule(30)),
            "an object lock": lambda: kept_run(deletions=rule(7), locked_days=30.0),
        },
        failing={
            "an earlier rule": lambda: kept_run(deletions=rule(7)),
            "an earlier rule among later ones": lambda: kept_run(deletions=(*rule(90), *rule(29), *rule(None))),
            "an earlier rule where not all is told": lambda: kept_run(told=False, deletions=rule(1)),
            "a lock that is too short": lambda: kept_run(deletions=rule(7), locked_days=3.0),
        },
        unknown={
            "nobody tells": lambda: kept_run(told=False),
            "at the next boot": lambda: kept_run(deletions=rule(None)),
            "nobody looked": lambda: mutate(kept_run(), delivered=None),
        },
    ),
    "hook-called": Cases(
        passing={
            "once": lambda: told_run(call()),
            "command and webhook": lambda: told_run(
                call(),
                call(HookKind.WEBHOOK, exit_status=None, http_status=200),
                incident=Incident(command=("notify.sh",), webhook="$CHAT"),
            ),
            "no hang and no call": quiet_run,
        },
        failing={
            "never": told_run,
            "twice": lambda: told_run(call(), call()),
            "exit status 1": lambda: told_run(call(ok=False, exit_status=1, error="exit status 1")),
            "a command that is not there": lambda: told_run(
                call(ok=False, exit_status=None, error="cannot be started: No such file or directory")
            ),
            "not over in time": lambda: told_run(call(ok=False, timed_out=True, error="not over within 10 s")),
            "HTTP status 500": lambda: told_run(
                call(HookKind.WEBHOOK, ok=False, http_status=500, error="HTTP status 500"),
                incident=Incident(webhook="$CHAT"),
            ),
            "only one of two": lambda: told_run(call(), incident=Incident(command=("notify.sh",), webhook="$CHAT")),
            "only for another attempt": lambda: told_run(call(attempt=1)),
            "without a hang": lambda: quiet_run(call()),
        },
        unknown={
            "no manifest": lambda: told_run(call(), manifest=None),
            "its end was not recorded": lambda: told_run(call(ended_ns=None, ok=False)),
            "the hang was not noticed": lambda: told_run(manifest=mutate(held_run().manifest, noticed_ns=None)),
        },
    ),
    "culprit": Cases(
        passing={
            "rank 1": held_run,
            "no hang": none_run,
            "inferred by absence": lambda: mutate(
                held_run(),
                diagnosis=mutate(diagnosis(), culprits=(Culprit(rank=1, basis=Basis.INFERRED, why=""),)),
            ),
            "only the kind is expected": lambda: held_run(scenario=scenario(expect={"culprit": None})),
        },
        failing={
            "an innocent rank 0": lambda: named(0),
            "an innocent rank 3": lambda: named(3),
            "one too many": lambda: named(0, 1),
            "one too few": lambda: mutate(named(1), scenario=scenario(expect={"culprit": None, "culprits": (1, 3)})),
            "another kind": lambda: mutate(held_run(), diagnosis=mutate(diagnosis(), kind=HangKind.SHAPE_MISMATCH)),
            "no kind": lambda: mutate(held_run(), diagnosis=mutate(diagnosis(), kind=None)),
            "no hang, though there was one": lambda: mutate(held_run(), diagnosis=no_hang()),
            "a hang, though there was none": lambda: none_run(diagnosis=diagnosis()),
        },
        unknown={
            "no diagnosis": lambda: mutate(held_run(), diagnosis=None),
            "undecided": lambda: mutate(held_run(), diagnosis=undecided()),
            "undecided, and no hang expected": lambda: none_run(diagnosis=undecided()),
            "a hang, but nobody is named": named,
            "never confirmed": unconfirmed,
        },
    ),
    "job-ended": Cases(
        passing={
            "ended": held_run,
            "healthy with status 0": none_run,
            "never confirmed, but over": unconfirmed,
        },
        failing={
            "overdue": lambda: with_event(detail={"in_time": False}),
            "too long after the fault": lambda: with_event(time_ns=CONFIRMED_NS + 86 * SECOND_NS),
            "a healthy job failed": lambda: none_run(job_exit_code=1),
            "a slow job failed": lambda: none_run(
                scenario=mutate(none_run().scenario, fault=mutate(none_run().scenario.fault, kind=FaultKind.SLOW)),
                job_exit_code=1,
            ),
        },
        unknown={
            "no end in the journal": lambda: mutate(held_run(), journal=()),
            "no exit status of a healthy job": lambda: none_run(job_exit_code=None),
        },
    ),
    "nothing-left": Cases(
        passing={"clean": held_run},
        failing={
            "a process": lambda: mutate(held_run(), leftovers=(Leftover(what="process", name="4001 train.py"),)),
        },
        unknown={"nobody looked": lambda: mutate(held_run(), leftovers=None)},
    ),
}
