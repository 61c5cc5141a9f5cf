"""Under Slurm: would dumps outlive the job's directories on the nodes, and would the nodes see the run directory?

`look_at_slurm` asks slurmctld once, and changes nothing; the rules are pure.
"""

import subprocess
from collections.abc import Iterator, Mapping

from hangdrill.model.preflight import Finding
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Slurm, Surroundings

__all__ = ["NODE_LOCAL", "local_root", "look_at_slurm", "slurm_findings"]

ASK_DEADLINE_S = 20.0
PRIVATE = ("/tmp", "/dev/shm")
"""What job_container/tmpfs gives each job of its own, and deletes with it."""
NODE_LOCAL = (*PRIVATE, "/var/tmp", "/run")
CONTAINER = "job_container/tmpfs"
SHARE = "name a directory that all nodes share, in your home or scratch directory"


def look_at_slurm(environ: Mapping[str, str], run_directory: str) -> Slurm:
    """What `scontrol show config` says."""
    try:
        told = subprocess.run(
            ["scontrol", "show", "config"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=ASK_DEADLINE_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return Slurm(run_directory=run_directory)
    settings = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in told.splitlines())}
    kill_wait = settings.get("KillWait", "").partition(" ")[0]
    return Slurm(
        known=True,
        private_tmp=settings.get("JobContainerType") == CONTAINER,
        kill_wait_s=float(kill_wait) if kill_wait.isdecimal() else None,
        run_directory=run_directory,
    )


def local_root(directory: str) -> str:
    """Which directory of each host's own holds it; "" when none does."""
    return next((root for root in NODE_LOCAL if f"{directory}/".startswith(f"{root}/")), "")


def slurm_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    slurm, drilled = facts.slurm, facts.job.launcher == "slurm"
    if slurm is None:
        return
    if not slurm.known:
        what = (
            "slurmctld was not asked or did not answer: whether a job has a private /tmp, and its grace, is not known"
        )
        mend = "run preflight where Slurm's commands work"
        yield found("slurm-not-known", what=what, where="scontrol show config", mend=mend)
    if drilled and (root := local_root(slurm.run_directory)):
        what = f"the run directory would be below {root}, which is each host's own: the nodes would not see it"
        yield found("run-directory-on-node", what=what, where=slurm.run_directory, mend=f"{SHARE}, with --out")
    place = facts.place
    root = local_root(place.directory)
    if not root or (place.made_by_hangdrill and place.directory == slurm.run_directory):
        return
    if slurm.private_tmp and root in PRIVATE:
        what = f"{place.directory} is in the job's private {root}, which Slurm's {CONTAINER} deletes with the job"
        yield found("dump-on-job-tmp", what=what, where=place.chosen_by, mend=SHARE)
    else:
        what = f"{place.directory} is on each node's own disk: after the job somebody must fetch dumps from every node"
        yield found("dump-on-node-disk", what=what, where=place.chosen_by, mend=SHARE)
