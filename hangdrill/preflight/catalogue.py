"""Every finding there is: its severity, and when it is raised. docs/preflight.md has the same table (tested)."""

from hangdrill.model.preflight import Finding, Severity
from hangdrill.recorder.printable import printable

__all__ = ["CATALOGUE", "DUMP_FINDINGS", "NATIVE_FILES", "found"]

LOSES, UNKNOWN, RISK, NOTE = Severity.LOSES_EVIDENCE, Severity.UNKNOWN, Severity.RISK, Severity.NOTE

CATALOGUE: dict[str, tuple[Severity, str]] = {
    # recorder
    "recorder-off": (LOSES, "the buffer has no entries"),
    "recorder-buffer-small": (RISK, "the buffer is smaller than torch's default of 2000"),
    "dump-on-timeout-off": (LOSES, "torch is told not to write a dump, and nothing else collects"),
    "stacks-left-out": (RISK, "dumps are written without stacks"),
    "history-left-out": (LOSES, "dumps hold unfinished operations only"),
    "monitoring-off": (LOSES, "the thread that writes the legacy backend's dumps is off"),
    "blocking-wait": (UNKNOWN, "with blocking wait nccl2 has no watchdog; what it then leaves was not measured"),
    "errors-not-handled": (RISK, "the watchdog is told to do nothing on an error"),
    # variables
    "variable-unknown": (RISK, "a variable of torch's families that torch does not read"),
    "variable-bad-value": (LOSES, "a value that torch cannot read: the rank raises, aborts or hangs at its start"),
    "variable-deprecated": (NOTE, "an old spelling of a variable"),
    "variable-both-spellings": (RISK, "both spellings of a variable, with different values"),
    "variable-not-for-backend": (NOTE, "a variable that only the legacy backend reads, for another backend"),
    # where dumps go
    "dump-directory-missing": (LOSES, "torch does not create the directory; the failed write is one log line"),
    "dump-directory-unwritable": (LOSES, "no directory, not permitted, or a file system that is mounted read-only"),
    "dump-directory-not-seen": (UNKNOWN, "the directory could not be looked at"),
    "dump-file-system-full": (LOSES, "less space than the dumps of this host need"),
    "dump-on-tmpfs": (RISK, "in memory: gone with the node or pod, and counted as memory of the job"),
    "dump-on-container-layer": (LOSES, "gone with the container"),
    "dump-in-empty-dir": (LOSES, "in an emptyDir: deleted with the pod"),
    "dump-on-job-tmp": (LOSES, "in a /tmp that Slurm's job_container/tmpfs deletes with the job"),
    "dump-on-node-disk": (RISK, "under Slurm on each node's own disk: somebody must fetch them there"),
    "dump-shared-by-hosts": (RISK, "a network file system under a prefix that names neither job nor host"),
    "dump-overwritten-by-restarts": (LOSES, "a restarted rank writes the same name again"),
    "dump-readable-by-others": (RISK, "dumps are written with mode 0644, in a directory that others may enter"),
    "dump-name-without-rank": (LOSES, "all ranks write one file"),
    "dump-prefix-empty": (LOSES, "an empty prefix: files called 0, 1, ... in the working directory"),
    "dump-prefix-relative": (RISK, "a prefix relative to each rank's working directory"),
    "dump-prefix-is-directory": (RISK, "the prefix is a directory: files land beside it"),
    "dump-files-of-before": (NOTE, "files of an earlier job bear the prefix"),
    # delivery
    "no-rank-dumps": (LOSES, "this backend on this road is known to leave no dump"),
    "stalled-rank-does-not-dump": (LOSES, "this backend on this road is known to dump on waiting ranks only"),
    "delivery-not-known": (UNKNOWN, "nothing was measured of this backend on this road"),
    "backend-not-known": (UNKNOWN, "neither scenario, script nor --backend names the backend"),
    "sockets-directory-missing": (
        RISK,
        "the directory that HANGDRILL_SOCKETS names is not there: no collector was started",
    ),
    # the way out
    "deliver-package-missing": (LOSES, "the package for the target's protocol is not installed beside hangdrill"),
    "deliver-refused": (LOSES, "there are no credentials, or the store or the directory refuses them"),
    "deliver-not-reached": (LOSES, "no such bucket or directory, or the store does not answer"),
    "retention-too-short": (LOSES, "a rule deletes the evidence before recorder.keep_days is over"),
    "retention-not-known": (UNKNOWN, "nobody tells how long the evidence is kept"),
    "hook-command-missing": (RISK, "the incident hook is not there, or may not be run"),
    "hook-webhook-not-set": (RISK, "the variable of the incident webhook is not set"),
    # timeouts
    "dump-wait-too-short": (LOSES, "a dump is given up before it can be complete"),
    "killed-before-dump": (LOSES, "the job is ended from outside before the group times out and the dump is written"),
    "heartbeat-too-short": (LOSES, "the legacy watchdog's process is ended before its dump may be complete"),
    "grace-too-short": (RISK, "pod or scheduler kill before torchrun has ended its ranks"),
    "grace-not-known": (UNKNOWN, "under Kubernetes or Slurm, and nobody says how long their grace is"),
    "sidecar-missing": (RISK, "a job in a pod, and no collector beside its ranks"),
    "sockets-in-memory": (NOTE, "an emptyDir of medium Memory in a pod with a memory limit"),
    "shutdown-timeout-short": (RISK, "torchrun kills within the 15 s that a rank waits for its dump"),
    "shutdown-timeout-ignored": (NOTE, "torchrun 2.15 waits 30 s on a worker's failure, whatever it is told"),
    "restart-shares-store": (
        RISK,
        "on gloo a job that torchrun restarts may meet its dead ranks' addresses in the old store",
    ),
    "group-timeout-not-known": (UNKNOWN, "an outside limit is given, but the group's timeout is not a literal"),
    # debug server
    "debug-server-cannot-start": (LOSES, "torch has none, or a package that it needs is missing"),
    "debug-server-slow": (LOSES, "it asks less often than the 15 s before ranks abort"),
    "debug-server-no-directory": (LOSES, "without dump_dir it writes nothing by itself"),
    "debug-server-unguarded": (RISK, "started without a main guard: a spawned process runs the script again"),
    "debug-server-overwrites": (RISK, "under nccl2 it replaces a waiting rank's dump with stacks by one without"),
    "debug-server-open": (RISK, "it listens on all interfaces, without a password"),
    "debug-server-not-known": (UNKNOWN, "its interval or directory is no literal, or nobody starts it"),
    # stacks
    "py-spy-missing": (RISK, "no py-spy: no stack of a rank that holds its GIL or is stopped"),
    "py-spy-not-permitted": (RISK, "the kernel does not let one process of the user trace another"),
    "py-spy-not-known": (UNKNOWN, "this process's capabilities could not be read"),
    # devices
    "device-id-missing": (RISK, "init_process_group without device_id on an NCCL backend"),
    "two-ranks-on-one-gpu": (RISK, "more ranks on a host than GPUs, or one constant GPU for several ranks"),
    "local-rank-inherited": (RISK, "LOCAL_RANK comes from the environment, the same for every rank"),
    "several-gpus-in-one-process": (RISK, "one process uses several GPUs, and a group is bound to one"),
    "class-test-misses-nccl2": (RISK, "isinstance(..., ProcessGroupNCCL) is false for nccl2"),
    "gpus-not-seen": (NOTE, "no GPU is visible where preflight runs, so ranks and GPUs were not compared"),
    # hosts
    "clock-not-synchronised": (RISK, "several nodes, and nothing keeps this host's clock right"),
    "clock-not-seen": (UNKNOWN, "several nodes, and whether anything keeps the clock right could not be seen"),
    "memory-limit-small": (RISK, "less memory than the ranks need: one that the OOM killer ends leaves no dump"),
    # versions
    "torch-not-known": (UNKNOWN, "the ranks' Python has no torch, or it could not be asked"),
    "torch-too-old": (UNKNOWN, "older than 2.11: nothing here was measured with it"),
    "nccl-too-old": (RISK, "NCCL below 2.29 or RCCL below 2.30.7: a group cannot be reconfigured"),
    "rollback-used": (NOTE, "the legacy backend, which goes away in the release after 2.15"),
    "rollback-misspelled": (LOSES, 'TORCH_DIST_USE_NCCL2 has a value other than "0" or "1"'),
    "rollback-not-read": (RISK, "this torch does not know TORCH_DIST_USE_NCCL2"),
    # Slurm
    "slurm-not-known": (UNKNOWN, "a job of Slurm, and slurmctld does not answer"),
    "run-directory-on-node": (RISK, "a drill under Slurm whose run directory the nodes would not see"),
    # the look itself
    "command-not-understood": (UNKNOWN, "the command line is none of torchrun that was understood"),
    "script-not-seen": (UNKNOWN, "the script could not be read or parsed"),
    "script-cannot-tell": (UNKNOWN, "the script decides at run time, or leaves it to a library"),
}

NATIVE_FILES = frozenset(
    id for id in CATALOGUE if id.startswith("dump-") and CATALOGUE[id][0] is LOSES and id != "dump-file-system-full"
)
"""About the files that torch writes by itself. They lose nothing where the collector pulls: there they are risks."""
DUMP_FINDINGS = frozenset(id for id in CATALOGUE if id.startswith("dump-") and id != "dump-files-of-before")
"""About the files that torch writes by itself, at whatever cost: moot where it is known to write none."""


def found(id: str, *, what: str, where: str, mend: str) -> Finding:
    """A finding of the catalogue. Values of variables and names of files are made safe to print."""
    texts = {"what": printable(what), "where": printable(where), "mend": printable(mend)}
    return Finding(id=id, severity=CATALOGUE[id][0], **texts)
