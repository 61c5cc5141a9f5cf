"""Would a native dump find its place, stay there, and be read by the right people only? Pure.

The place matters on every road: the collector copies native files, and torch writes them whatever else collects.
"""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import Trigger
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.recorder import buffer_entries
from hangdrill.preflight.surroundings import Place, Surroundings
from hangdrill.preflight.variables import flag

__all__ = ["destination_findings"]

BYTES_OF_AN_ENTRY = 1024
"""A recorded operation with its stack, generously."""
MEMORY = {"tmpfs", "ramfs"}
LAYERS = {"overlay", "aufs", "fuse.fuse-overlayfs"}
NETWORK = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "virtiofs", "afs", "pvfs2", "glusterfs",
    "wekafs", "panfs", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs", "fuse.ceph",
}  # fmt: skip
JOB_IDS = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "HOSTNAME", "POD_NAME", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
SET_PREFIX = "set TORCH_FR_DUMP_TEMP_FILE to DIRECTORY/fr_, on a disk that outlives the job"


def destination_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    yield from _name(facts)
    place = facts.place
    if place.exists and not place.is_directory:
        what = f"{place.directory} is no directory: every dump that torch itself writes is lost, with one log line"
        yield found("dump-directory-unwritable", what=what, where=place.chosen_by, mend=SET_PREFIX)
    elif not place.exists and not place.made_by_hangdrill:
        lost = "every dump that torch itself writes is lost, with one log line"
        what = f"{place.directory} does not exist, and torch does not create it: {lost}"
        mend = f"mkdir -p -m 700 {place.directory}, on every host, before the job starts"
        yield found("dump-directory-missing", what=what, where=place.chosen_by, mend=mend)
    else:
        yield from _access(facts)
    yield from _storage(facts)
    yield from _again(facts)


def _name(facts: Surroundings) -> Iterator[Finding]:
    place = facts.place
    if flag("TORCH_FR_DUMP_DYNAMIC_FILE_NAME", facts.environ, default=False):
        what = "torch leaves the rank out of the file's name: all ranks write one file, and the last one wins"
        name = "TORCH_FR_DUMP_DYNAMIC_FILE_NAME"
        yield found("dump-name-without-rank", what=what, where=name, mend=f"unset {name}")
    if not place.prefix:
        what = "the prefix is empty: dumps are called 0, 1, ... in each rank's working directory"
        yield found("dump-prefix-empty", what=what, where=place.chosen_by, mend=SET_PREFIX)
    elif not place.prefix.startswith("/"):
        what = f"the prefix {place.prefix} is relative: it is meant from each rank's own working directory"
        yield found("dump-prefix-relative", what=what, where=place.chosen_by, mend="make the path absolute")
    if place.names_a_directory:
        what = f"the prefix {place.prefix} is a directory: files land beside it, as {place.prefix}0"
        yield found("dump-prefix-is-directory", what=what, where=place.chosen_by, mend=f"use {place.prefix}/fr_")


def _access(facts: Surroundings) -> Iterator[Finding]:
    place = facts.place
    if place.writable is None:
        what = f"whether {place.directory} can be written could not be seen"
        mend = "run preflight as the job's user, on a host of the job"
        yield found("dump-directory-not-seen", what=what, where=place.chosen_by, mend=mend)
    elif not place.writable:
        what = f"{place.directory} cannot be written by this user: every dump that torch itself writes is lost"
        yield found("dump-directory-unwritable", what=what, where=place.chosen_by, mend=SET_PREFIX)
    needed = max(buffer_entries(facts), 0) * BYTES_OF_AN_ENTRY * (facts.job.nproc_per_node or 8)
    if place.free_bytes is not None and place.free_bytes < needed:
        what = f"{place.free_bytes:,} bytes are free in {place.directory}, and dumps of this host may need {needed:,}"
        yield found("dump-file-system-full", what=what, where=place.mount_point, mend="free space, or " + SET_PREFIX)
    if place.others_can_read and not place.made_by_hangdrill:
        what = f"others may read dumps in {place.directory}: they hold file names, shapes and host names of your job"
        mend = "use a directory of your own with mode 700, or run the job with umask 077"
        yield found("dump-readable-by-others", what=what, where=place.directory, mend=mend)


def _storage(facts: Surroundings) -> Iterator[Finding]:
    place = facts.place
    system, where = place.file_system, f"{place.directory} on {place.mount_point}"
    if system is None:
        what = f"the file system of {place.directory} could not be seen: it may not outlive the job"
        mend = "run preflight on a host of the job, with /proc mounted"
        yield found("dump-directory-not-seen", what=what, where=place.chosen_by, mend=mend)
    elif system in MEMORY:
        what = "dumps go to memory: gone with the node or the pod, and counted as memory of the job"
        yield found("dump-on-tmpfs", what=what, where=where, mend=SET_PREFIX)
    elif system in LAYERS or (facts.machine.in_container and place.mount_point == "/"):
        what = "dumps go to the container's own layer: gone when the container is"
        mend = "mount a volume, and " + SET_PREFIX.replace("on a disk that outlives the job", "there")
        yield found("dump-on-container-layer", what=what, where=where, mend=mend)
    elif system in NETWORK and _is_shared(facts) and not _names_a_job(place, facts):
        what = f"hosts and jobs share {system}, and the name holds only the rank: two jobs overwrite each other's dumps"
        mend = "put the job's id into TORCH_FR_DUMP_TEMP_FILE, as /shared/dumps/$JOB_ID/fr_"
        yield found("dump-shared-by-hosts", what=what, where=where, mend=mend)


def _is_shared(facts: Surroundings) -> bool:
    """Several nodes, or a number of them that nobody knows."""
    return facts.job.nnodes is None or facts.job.nnodes > 1


def _names_a_job(place: Place, facts: Surroundings) -> bool:
    ids = (facts.environ.get(name, "") for name in JOB_IDS)
    return any(id_ and id_ in place.prefix for id_ in ids)


def _again(facts: Surroundings) -> Iterator[Finding]:
    """What a second writer of the same name does. The collector and the debug server keep a file a pull."""
    place = facts.place
    restarts = facts.job.max_restarts or 0
    if restarts > 0 and facts.job.trigger is not Trigger.COLLECTOR:
        what = f"after a restart (up to {restarts}) a rank writes the same name again: the first hang's dump is lost"
        mend = "run the collector, which keeps a file for each attempt, or start without --max-restarts"
        yield found("dump-overwritten-by-restarts", what=what, where="max-restarts", mend=mend)
    if place.old_files:
        what = f"{place.old_files} files of an earlier job bear the prefix {place.prefix}"
        mend = "move them away, so that nobody takes them for this job's"
        yield found("dump-files-of-before", what=what, where=place.directory, mend=mend)
