"""Why a dump is missing or cut, as far as the place where torch writes it tells; and what mends it. Pure.

From the scenario (volumes, variables) and from what the drill's inspections saw of the directory, as the job sees it.
The collector's own files lie elsewhere, so all this is for the roads on which torch writes by itself.
"""

from hangdrill.checks.base import Finding, failed
from hangdrill.checks.evidence import COLLECTED
from hangdrill.checks.words import list_text, size_text
from hangdrill.model.run import PlaceFacts, RecordedRun
from hangdrill.model.scenario import LauncherName, Trigger

__all__ = ["FREE_SPACE", "describe_layer", "full_disk", "room_left", "why_not_written"]

LEAST_FREE_BYTES = 64 * 1024
"""A dump needs some KiB; with less left a missing or cut one is no wonder."""
DYNAMIC = "TORCH_FR_DUMP_DYNAMIC_FILE_NAME"
FREE_SPACE = "free space there, or let dumps go to a disk with room for them: hangdrill preflight says how much"
ON = {"1", "t", "true", "y", "yes", "on"}


def why_not_written(run: RecordedRun) -> Finding | None:
    """The reason that the place gives for a rank's missing dump; None where it gives none."""
    if run.scenario.recorder.trigger is Trigger.COLLECTOR:
        return None
    place = _seen(run)
    reasons = (_one_name(run, place), _read_only(run, place), _missing(place), _not_writable(run, place))
    for reason in reasons:
        if reason is not None:
            return failed(f"missing: {reason.text}", reason.mend)
    if full := full_disk(run):
        return failed(f"missing: {full}", FREE_SPACE)
    return None


def full_disk(run: RecordedRun) -> str:
    """That the disk of the dumps was full when they were looked at, with the place and what was free; else ""."""
    place = _seen(run)
    if run.scenario.recorder.trigger is Trigger.COLLECTOR or place.free_bytes is None:
        return ""
    if place.free_bytes >= LEAST_FREE_BYTES:
        return ""
    total = f" of {size_text(place.total_bytes)}" if place.total_bytes is not None else ""
    kind = f" ({place.file_system})" if place.file_system else ""
    return f"the disk is full (ENOSPC): {size_text(place.free_bytes)}{total} are free in {place.path}{kind}"


def room_left(run: RecordedRun) -> str:
    """That the disk was not full, where that was seen: then something else cut a dump."""
    place = _seen(run)
    if place.free_bytes is None or full_disk(run):
        return ""
    return f"{size_text(place.free_bytes)} were free in {place.path}, so the writer was ended in the middle"


def describe_layer(run: RecordedRun, directory: str) -> str:
    """Why files in a directory go with the job's container; "" when they should not."""
    job = run.scenario.job
    if job.launcher is LauncherName.KUBERNETES and job.kubernetes.empty_dir_of(directory) is not None:
        return f"{directory} is in an emptyDir, which is deleted with the pod"
    volume = job.volume_of(directory)
    if not job.contained or (volume is not None and not volume.in_memory):
        return ""
    if volume is not None:
        return f"{directory} is a tmpfs: memory of the container"
    return f"{directory} is in the container's own layer, on no volume"


def _seen(run: RecordedRun) -> PlaceFacts:
    """What all looks together tell; a later one wins where it saw something."""
    directory = run.dump_prefix.rpartition("/")[0] or "/"
    known: dict[str, object] = {}
    for place in run.places:
        for name in ("exists", "is_directory", "writable", "read_only", "free_bytes", "total_bytes"):
            value = getattr(place, name)
            if value is not None:
                known[name] = value
        for name in ("file_system", "mount_point", "names"):
            if getattr(place, name):
                known[name] = getattr(place, name)
    return PlaceFacts(when=COLLECTED, path=directory, **known)  # type: ignore[arg-type] # fields by name


def _one_name(run: RecordedRun, place: PlaceFacts) -> Finding | None:
    start = run.dump_prefix.rpartition("/")[2]
    own = {f"{start}{rank}" for rank in range(run.scenario.job.world_size)}
    if own & set(place.names):
        return None
    if run.scenario.job.env.get(DYNAMIC, "").lower() in ON:
        found = f"; there is {list_text(place.names)}" if place.names else ""
        text = f"{DYNAMIC} leaves the rank out of the name, so all ranks write one file, {run.dump_prefix}{found}"
        return failed(text, f"unset {DYNAMIC}")
    if start in place.names:
        return failed(f"all ranks wrote one file, {run.dump_prefix}: the name has no rank", f"is {DYNAMIC} set?")
    return None


def _read_only(run: RecordedRun, place: PlaceFacts) -> Finding | None:
    job, directory = run.scenario.job, place.path
    volume, home = job.volume_of(directory), job.env.get("HOME", "").rstrip("/")
    mend = "mount the volume without :ro, or let dumps go to another one"
    if home and f"{directory}/".startswith(f"{home}/") and (place.read_only or (volume and volume.read_only)):
        return failed(f"{directory} is in the home directory, which is on a read-only file system", mend)
    if volume is not None and volume.read_only:
        return failed(f"{directory} is on a volume that is mounted read-only", mend)
    if place.read_only:
        on = f", mounted on {place.mount_point}" if place.mount_point else ""
        return failed(f"{directory} is on a read-only file system{on}", "let dumps go to a writable one")
    return None


def _missing(place: PlaceFacts) -> Finding | None:
    if place.exists is False:
        mend = f"mkdir -p -m 700 {place.path}, on every host, before the job starts"
        return failed(f"{place.path} does not exist, and torch does not create it", mend)
    if place.exists and place.is_directory is False:
        return failed(f"{place.path} is no directory", "name a directory, and a prefix in it")
    return None


def _not_writable(run: RecordedRun, place: PlaceFacts) -> Finding | None:
    if place.writable is not False:
        return None
    return failed(f"{place.path} may not be written by uid {run.uid}", f"chown {run.uid} {place.path}, and mode 700")
