"""Every finding is raised where its misconfiguration is planted, alone where nothing else follows; and not without."""

import pytest
from good_surroundings import good, ids

from hangdrill.model.delivery import Deletion, KeptPlace
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.preflight import Finding, Severity, preflight_verdict
from hangdrill.model.scenario import FaultKind, Trigger
from hangdrill.model.verdict import Verdict
from hangdrill.preflight import CATALOGUE, examine
from hangdrill.preflight.surroundings import Call, DebugServerCall, Job, JobKind, Slurm, Sockets, Surroundings, WayOut

NATIVE, SERVER = Trigger.NATIVE, Trigger.DEBUG_SERVER
CULPRIT = "stalled-rank-does-not-dump"
LEGACY = {"job": {"trigger": NATIVE, "backend": "nccl-legacy"}}
OPEN = "debug-server-open"
PRIVATE_TMP = Slurm(known=True, private_tmp=True, kill_wait_s=60.0, run_directory="/home/me/hangdrill-runs")


def env(**variables: str) -> Surroundings:
    return good(environ=variables)


def legacy(**variables: str) -> Surroundings:
    return good(environ=variables, **LEGACY)


def server(**planted: object) -> Surroundings:
    call = {"line": 3, "guarded": True, "interval_s": 5.0, "has_dump_dir": True, **planted}
    return good(job={"trigger": SERVER, "backend": "gloo"}, script={"debug_servers": (DebugServerCall(**call),)})


def restarted(fault: FaultKind = FaultKind.HOLD, **variables: str) -> Surroundings:
    return good(environ=variables, job={"backend": "gloo", "max_restarts": 1, "fault": fault})


def out(**planted: object) -> Surroundings:
    return good(way_out=WayOut(deliver_to="s3://dumps", **planted))


def kept(*, told: bool = True, after_days: float | None = None) -> tuple[KeptPlace, ...]:
    rules = () if after_days is None else (Deletion(source="rule", after_days=after_days, text="deletes"),)
    return (KeptPlace(place="s3://dumps", what="delivered", told=told, why="the bucket", deletions=rules),)


PLANTED: list[tuple[str, Surroundings, list[str]]] = [
    # recorder
    ("recorder-off", env(TORCH_FR_BUFFER_SIZE="0"), []),
    ("recorder-off", env(TORCH_FR_BUFFER_SIZE="-1"), []),
    ("recorder-buffer-small", env(TORCH_FR_BUFFER_SIZE="200"), []),
    ("dump-on-timeout-off", legacy(TORCH_FR_DUMP_ON_TIMEOUT="0"), ["rollback-used"]),
    ("stacks-left-out", env(TORCH_INCLUDE_STACK_TRACE="false"), []),
    ("history-left-out", env(TORCH_INCLUDE_ONLY_ACTIVE="1"), []),
    ("monitoring-off", legacy(TORCH_NCCL_ENABLE_MONITORING="0"), ["rollback-used"]),
    (
        "blocking-wait",
        good(environ={"TORCH_NCCL_BLOCKING_WAIT": "1"}, job={"trigger": NATIVE}),
        [CULPRIT],
    ),
    ("errors-not-handled", env(TORCH_NCCL_ASYNC_ERROR_HANDLING="0"), []),
    # variables
    ("variable-unknown", env(TORCH_NCCL_FLIGHT_RECORDER_ENABLED="1"), []),
    ("variable-unknown", env(TORCH_FR_BUFER_SIZE="2000"), []),
    ("variable-bad-value", env(TORCH_FR_BUFFER_SIZE=""), []),
    ("variable-bad-value", env(TORCH_FR_BUFFER_SIZE="20k"), []),
    ("variable-bad-value", env(TORCH_FR_DUMP_ON_TIMEOUT="on"), []),
    ("variable-deprecated", env(TORCH_NCCL_TRACE_BUFFER_SIZE="2000"), []),
    ("variable-both-spellings", env(TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_TRACE_BUFFER_SIZE="20000"), []),
    ("variable-not-for-backend", env(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="900"), []),
    # where dumps go
    ("dump-directory-missing", good(place={"exists": False, "is_directory": False, "writable": False}), []),
    ("dump-directory-unwritable", good(place={"writable": False}), []),
    ("dump-directory-unwritable", good(place={"is_directory": False, "writable": False}), []),
    ("dump-directory-not-seen", good(place={"writable": None}), []),
    ("dump-directory-not-seen", good(place={"file_system": None}), []),
    ("dump-file-system-full", good(place={"free_bytes": 1_000_000}), []),
    ("dump-on-tmpfs", good(place={"file_system": "tmpfs"}), []),
    ("dump-on-container-layer", good(place={"file_system": "overlay"}), []),
    (
        "dump-on-container-layer",
        good(place={"file_system": "zfs", "mount_point": "/"}, machine={"in_container": True}),
        [],
    ),
    ("dump-in-empty-dir", good(place={"in_empty_dir": True}), []),
    ("dump-shared-by-hosts", good(place={"file_system": "nfs4"}, job={"nnodes": 2}), []),
    ("dump-shared-by-hosts", good(place={"file_system": "lustre"}, job={"nnodes": None}), []),
    ("dump-overwritten-by-restarts", good(job={"max_restarts": 3, **LEGACY["job"]}), ["rollback-used"]),
    ("dump-readable-by-others", good(place={"others_can_read": True}), []),
    ("dump-name-without-rank", env(TORCH_FR_DUMP_DYNAMIC_FILE_NAME="1"), []),
    ("dump-prefix-empty", good(place={"prefix": ""}), []),
    ("dump-prefix-relative", good(place={"prefix": "dumps/fr_"}), []),
    ("dump-prefix-is-directory", good(place={"names_a_directory": True}), []),
    ("dump-files-of-before", good(place={"old_files": 8}), []),
    # delivery
    ("no-rank-dumps", good(job={"trigger": NATIVE, "backend": "gloo"}), []),
    (CULPRIT, good(job={"trigger": NATIVE}), []),
    ("delivery-not-known", good(job={"trigger": NATIVE, "backend": "mine"}), []),
    ("backend-not-known", good(job={"trigger": NATIVE}, init={"backends": None}), ["script-cannot-tell"]),
    ("sockets-directory-missing", good(sockets=Sockets(directory="/tmp/none", exists=False)), []),
    # the way out
    ("deliver-package-missing", out(problem="the package for s3:// is missing: s3fs"), []),
    ("deliver-refused", out(problem="there are no credentials"), []),
    ("deliver-refused", out(problem="the store refuses these credentials: denied"), []),
    ("deliver-refused", out(problem="this user may not write there: denied"), []),
    ("deliver-not-reached", out(problem="there is no bucket or directory dumps"), []),
    ("deliver-not-reached", out(problem="no answer within 8 s"), []),
    ("retention-too-short", out(keep_days=30, kept=kept(after_days=7)), []),
    ("retention-not-known", out(keep_days=30, kept=kept(told=False)), []),
    ("retention-not-known", out(keep_days=30), []),
    ("hook-command-missing", out(hook_missing="notify.sh"), []),
    ("hook-webhook-not-set", out(webhook_unset="$CHAT"), []),
    # timeouts
    ("dump-wait-too-short", env(TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC="2000"), []),
    ("killed-before-dump", good(kill_after_s=599.0), []),
    ("killed-before-dump", good(kill_after_s=620.0, **LEGACY), ["rollback-used"]),
    ("heartbeat-too-short", legacy(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="10"), ["rollback-used"]),
    ("grace-too-short", good(grace_s=30.0), []),
    ("grace-not-known", good(machine={"in_kubernetes": True}), []),
    ("grace-not-known", good(machine={"in_slurm": True}), []),
    ("sidecar-missing", good(pod=Kubernetes(), job={"trigger": NATIVE}), [CULPRIT]),
    ("sockets-in-memory", good(pod=Kubernetes(resources={"memory": "64Gi"})), []),
    ("shutdown-timeout-short", good(job={"shutdown_timeout_s": 5.0}), ["shutdown-timeout-ignored"]),
    ("shutdown-timeout-ignored", env(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="120"), []),
    ("restart-shares-store", good(job={"backend": "gloo", "max_restarts": 3}), []),
    ("restart-shares-store", restarted(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="true"), []),
    ("restart-shares-store", restarted(FaultKind.STORE_DEATH, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="0"), []),
    ("group-timeout-not-known", good(kill_after_s=600.0, init={"timeout_s": None, "timeout_dynamic": True}), []),
    # debug server
    ("debug-server-cannot-start", good(job={"trigger": SERVER}, torch={"has_debug_server": False}), [OPEN, "+"]),
    (
        "debug-server-cannot-start",
        good(job={"trigger": SERVER}, torch={"missing_for_debug_server": ("aiohttp",)}),
        [OPEN, "+"],
    ),
    ("debug-server-slow", server(interval_s=60.0), ["no-rank-dumps", OPEN]),
    ("debug-server-no-directory", server(has_dump_dir=False), ["no-rank-dumps", OPEN]),
    ("debug-server-unguarded", server(guarded=False), ["no-rank-dumps", OPEN]),
    ("debug-server-open", server(), ["no-rank-dumps"]),
    (
        "debug-server-overwrites",
        good(job={"trigger": SERVER, "backend": "nccl", "debug_interval_s": 2.0, "kind": JobKind.SCENARIO}),
        [OPEN],
    ),
    ("debug-server-not-known", server(interval_s=None), [OPEN]),
    ("debug-server-not-known", good(job={"trigger": SERVER}), [OPEN, "debug-server-overwrites"]),
    # stacks
    ("py-spy-missing", good(machine={"py_spy": None}), []),
    ("py-spy-not-permitted", good(machine={"can_trace": False}), []),
    ("py-spy-not-permitted", good(machine={"ptrace_scope": 3}), []),
    ("py-spy-not-known", good(machine={"can_trace": None}), []),
    # devices
    ("device-id-missing", good(init={"has_device_id": False}), []),
    ("two-ranks-on-one-gpu", good(torch={"gpus": 4}), []),
    ("two-ranks-on-one-gpu", good(script={"devices": (Call(line=4, index=0),)}), []),
    ("local-rank-inherited", good(environ={"LOCAL_RANK": "0"}, job={"launcher": ""}), []),
    ("several-gpus-in-one-process", good(script={"devices": (Call(line=4, index=0), Call(line=5, index=1))}), []),
    ("several-gpus-in-one-process", good(script={"data_parallel": (Call(line=4),)}), []),
    ("class-test-misses-nccl2", good(script={"class_tests": (Call(line=4),)}), []),
    ("gpus-not-seen", good(torch={"gpus": 0}), []),
    # hosts
    ("clock-not-synchronised", good(machine={"clock_synchronised": False}, job={"nnodes": 2}), []),
    ("clock-not-seen", good(machine={"clock_synchronised": None}, job={"nnodes": 2}), []),
    ("memory-limit-small", good(machine={"memory_limit_bytes": 2 << 30}), []),
    ("memory-limit-small", good(machine={"memory_limit_bytes": 64 << 30}, job={"memory_bytes": 4 << 30}), []),
    # versions
    ("torch-not-known", good(torch_problem="no torch"), ["-"]),
    ("torch-too-old", good(torch={"version": "2.6.0"}), []),
    ("nccl-too-old", good(torch={"nccl": (2, 28, 9)}), []),
    ("nccl-too-old", good(torch={"nccl": (2, 29, 0), "is_hip": True}), []),
    ("rollback-used", env(TORCH_DIST_USE_NCCL2="0"), []),
    ("rollback-misspelled", env(TORCH_DIST_USE_NCCL2="false"), []),
    ("rollback-misspelled", env(TORCH_DIST_USE_NCCL2="00"), []),
    ("rollback-not-read", good(environ={"TORCH_DIST_USE_NCCL2": "0"}, torch={"version": "2.13.0"}), []),
    # Slurm
    ("slurm-not-known", good(slurm=Slurm()), []),
    ("run-directory-on-node", good(slurm=Slurm(known=True, run_directory="/tmp/a"), job={"launcher": "slurm"}), []),
    ("dump-on-job-tmp", good(slurm=PRIVATE_TMP, place={"directory": "/tmp/dumps"}), []),
    ("dump-on-job-tmp", good(slurm=PRIVATE_TMP, place={"directory": "/dev/shm"}), []),
    ("dump-on-node-disk", good(slurm=PRIVATE_TMP, place={"directory": "/var/tmp/dumps"}), []),
    ("dump-on-node-disk", good(slurm=Slurm(known=True), place={"directory": "/tmp/dumps"}), []),
    # the look itself
    ("command-not-understood", good(job={"problem": "no script was found in the command"}), []),
    ("script-not-seen", good(script={"problem": "No such file", "inits": ()}, job={"backend": "gloo"}), []),
    ("script-cannot-tell", good(script={"inits": ()}, job={"backend": "nccl"}), []),
    ("script-cannot-tell", good(init={"has_device_id": None}), []),
]


def without_torch(facts: Surroundings) -> Surroundings:
    import msgspec

    return msgspec.structs.replace(facts, torch=None)


@pytest.mark.parametrize(
    ("name", "facts", "also"), PLANTED, ids=[f"{index}-{case[0]}" for index, case in enumerate(PLANTED)]
)
def test_what_is_planted_is_found(name: str, facts: Surroundings, also: list[str]) -> None:
    """also: findings that follow from the same plant; "+": more may follow; "-": torch is taken away."""
    found = ids(without_torch(facts) if also == ["-"] else facts)
    assert name in found
    if not {"+", "-"} & set(also):
        assert sorted(set(found)) == sorted({name, *also})


def test_every_finding_of_the_catalogue_is_planted_here() -> None:
    assert {name for name, _, _ in PLANTED} == CATALOGUE.keys()


def test_at_least_25_misconfigurations_are_named() -> None:
    assert len(CATALOGUE) >= 25


QUIET = {
    "a shared directory under Slurm": good(slurm=PRIVATE_TMP, job={"launcher": "slurm"}),
    "a directory whose name begins like one": good(slurm=PRIVATE_TMP, place={"directory": "/tmpfiles"}),
    "the grace that Slurm tells": good(machine={"in_slurm": True}, slurm=PRIVATE_TMP, grace_s=60.0),
    "another release may read what only the legacy backend reads in 2.15": good(
        environ={"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "900"}, torch={"version": "2.16.0"}
    ),
    "blocking wait and the collector": good(environ={"TORCH_NCCL_BLOCKING_WAIT": "1"}),
    "nccl with the collector": good(),
    "the ranks' sockets have their directory": good(sockets=Sockets(directory="/tmp/s", exists=True)),
    "torch writes no file on gloo, so its place does not matter": good(
        job={"backend": "gloo"}, place={"exists": False, "is_directory": False, "file_system": "overlay"}
    ),
    "a restart with a store of its own": restarted(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
    "a drill of a dying store has one": restarted(FaultKind.STORE_DEATH),
    "a restart on nccl, for all that is known": good(job={"max_restarts": 3}),
    "gloo with the collector": good(job={"backend": "gloo"}),
    "legacy dumps on every rank": good(job={"trigger": NATIVE, "backend": "nccl"}, torch={"version": "2.11.0"}),
    "numbers that fit": good(kill_after_s=600.0, grace_s=60.0),
    "a job's own directory on a share": good(
        environ={"SLURM_JOB_ID": "8812"},
        place={"file_system": "nfs4", "prefix": "/share/8812/fr_"},
        job={"nnodes": 4},
    ),
    "a share and one node": good(place={"file_system": "nfs4"}),
    "both spellings, one value": good(environ={"TORCH_FR_BUFFER_SIZE": "4000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "4000"}),
    "larger than the default": good(environ={"TORCH_FR_BUFFER_SIZE": "20000", "TORCH_FR_DUMP_ON_TIMEOUT": "True"}),
    "the new backend asked for": good(environ={"TORCH_DIST_USE_NCCL2": "1"}),
    "other people's variables": good(environ={"TORCH_HOME": "/x", "NCCL_DEBUG": "INFO", "TORCH_LOGS": "all"}),
    "Yama is not there": good(machine={"ptrace_scope": None, "can_trace": False}),
    "torchrun sets LOCAL_RANK anew": good(environ={"LOCAL_RANK": "0"}),
    "one rank and a constant GPU": good(script={"devices": (Call(line=4, index=0),)}, job={"nproc_per_node": 1}),
    "isinstance on the legacy backend": good(
        torch={"version": "2.13.0"}, script={"class_tests": (Call(line=4),)}
    ),
    "one host has one clock": good(machine={"clock_synchronised": False}),
    "delivered, kept and told": out(keep_days=30, kept=kept(after_days=30)),
    "memory enough": good(machine={"memory_limit_bytes": 8 << 30}),
    "hangdrill makes its own directory": good(place={"made_by_hangdrill": True, "others_can_read": True}),
    "a name that this torch does read": good(
        environ={"TORCH_NCCL_NEW_ONE": "1"}, torch={"reads": {"TORCH_NCCL_NEW_ONE": True}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("facts", QUIET.values(), ids=QUIET.keys())
def test_good_surroundings_are_quiet(facts: Surroundings) -> None:
    assert ids(facts) == []
    assert examine(facts).verdict is Verdict.PASS


def test_a_name_of_the_table_that_this_torch_does_not_read_is_unknown() -> None:
    facts = good(environ={"TORCH_FR_DUMP_TEMP_FILE": "/d/fr_"}, torch={"reads": {"TORCH_FR_DUMP_TEMP_FILE": False}})
    assert ids(facts) == ["variable-unknown"]


def test_an_unknown_variable_is_answered_with_the_one_that_was_meant() -> None:
    (finding,) = examine(env(TORCH_NCCL_FLIGHT_RECORDER_ENABLED="1")).findings
    assert (finding.where, finding.mend) == (
        "TORCH_NCCL_FLIGHT_RECORDER_ENABLED=1",
        "use TORCH_FR_BUFFER_SIZE=2000",
    )
    (finding,) = examine(env(TORCH_FR_BUFER_SIZE="1")).findings
    assert finding.mend == "use TORCH_FR_BUFFER_SIZE"


def test_the_first_spelling_counts() -> None:
    facts = env(TORCH_FR_BUFFER_SIZE="0", TORCH_NCCL_TRACE_BUFFER_SIZE="2000")
    assert set(ids(facts)) == {"recorder-off", "variable-both-spellings"}
    facts = env(TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_TRACE_BUFFER_SIZE="0")
    assert ids(facts) == ["variable-both-spellings"]


def test_without_any_job_it_cannot_be_told() -> None:
    facts = good(job={name: getattr(Job(), name) for name in Job.__struct_fields__})
    assert facts.job.kind is JobKind.NONE
    assert ids(facts) == ["backend-not-known"]
    assert examine(facts).verdict is Verdict.UNKNOWN


def test_the_debug_server_of_a_scenario_is_judged_by_its_interval() -> None:
    job = {"kind": JobKind.SCENARIO, "trigger": SERVER, "backend": "nccl", "script": None}
    assert "debug-server-slow" not in ids(good(job={**job, "debug_interval_s": 2.0}))
    assert {"debug-server-slow", CULPRIT} <= set(ids(good(job={**job, "debug_interval_s": 60.0})))


def test_a_lost_native_file_is_a_risk_where_the_collector_pulls() -> None:
    missing = {"exists": False, "is_directory": False, "writable": False}
    assert examine(good(place=missing)).verdict is Verdict.PASS
    assert examine(good(place=missing, **LEGACY)).verdict is Verdict.FAIL


GONE = {"exists": False, "is_directory": False, "file_system": "overlay"}


def test_where_torch_writes_no_file_its_place_is_not_judged() -> None:
    assert ids(good(place=GONE, job={"trigger": NATIVE, "backend": "gloo"})) == ["no-rank-dumps"]
    assert ids(good(place={**GONE, "old_files": 3}, job={"backend": "gloo"})) == ["dump-files-of-before"]


@pytest.mark.parametrize("backend", ["nccl", "nccl-lazy", "nccl-legacy"])
def test_under_nccl_the_collector_may_ask_torch_for_its_file_so_its_place_is_judged(backend: str) -> None:
    found = ids(good(place=GONE, job={"backend": backend}))
    assert {"dump-directory-missing", "dump-on-container-layer"} <= set(found)


def test_the_run_directory_is_judged_on_every_backend() -> None:
    place = {"made_by_hangdrill": True, "writable": False}
    assert ids(good(place=place, job={"backend": "gloo"})) == ["dump-directory-unwritable"]


def test_what_others_wrote_is_made_safe_to_print() -> None:
    (finding,) = examine(env(TORCH_NCCL_EVIL="a\x1b[2J\n\udcff")).findings
    assert finding.where == "TORCH_NCCL_EVIL=a\\x1b[2J\\x0a\\udcff"
    assert "\x1b" not in "".join(examine(good(place={"prefix": "/d/\x1b[2J"})).looked_at.values())


def test_a_scenario_is_judged_by_its_own_fault() -> None:
    job = {"kind": JobKind.SCENARIO, "trigger": NATIVE, "backend": "nccl", "script": None}
    assert ids(good(job={**job, "fault": FaultKind.HOLD})) == [CULPRIT]
    assert ids(good(job={**job, "fault": FaultKind.WRONG_SHAPE})) == []
    assert ids(good(job={**job, "fault": FaultKind.KILL})) == ["no-rank-dumps"]


def test_a_mixed_backend_is_judged_by_the_device_that_computes() -> None:
    job = {"trigger": NATIVE, "backend": "cpu:gloo,cuda:nccl"}
    assert ids(good(job=job)) == [CULPRIT]
    assert ids(good(job=job, torch={"gpus": 0})) == ["no-rank-dumps"]


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ((), Verdict.PASS),
        ((Severity.NOTE, Severity.RISK), Verdict.PASS),
        ((Severity.RISK, Severity.UNKNOWN), Verdict.UNKNOWN),
        ((Severity.UNKNOWN, Severity.LOSES_EVIDENCE), Verdict.FAIL),
    ],
)
def test_the_verdict_is_that_of_the_worst_finding(severities: tuple[Severity, ...], verdict: Verdict) -> None:
    findings = tuple(Finding(id="x", severity=each, what="", where="", mend="") for each in severities)
    assert preflight_verdict(findings) is verdict


@pytest.mark.parametrize("case", PLANTED, ids=[f"{index}-{case[0]}" for index, case in enumerate(PLANTED)])
def test_every_finding_says_what_where_and_how_to_mend(case: tuple[str, Surroundings, list[str]]) -> None:
    for finding in examine(case[1]).findings:
        assert finding.what
        assert finding.where
        assert finding.mend
        assert not finding.what.endswith(".")
