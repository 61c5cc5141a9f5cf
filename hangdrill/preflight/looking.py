"""What could not be looked at is said. Pure."""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import JobKind, Script, Surroundings

__all__ = ["looking_findings"]


def looking_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family; a scenario's job is hangdrill's own, or drilled with its own backend and timeout."""
    job = facts.job
    if job.problem:
        mend = "write it as `torchrun FLAGS SCRIPT ARGS`, without a shell around it"
        yield found("command-not-understood", what=job.problem, where="command", mend=mend)
    if job.script is None:
        return
    if job.script.problem:
        what = f"the script could not be looked at: {job.script.problem}"
        yield found(
            "script-not-seen", what=what, where=job.script.path, mend="name the script itself, readable from here"
        )
    elif job.kind is JobKind.COMMAND:
        yield from _cannot_tell(job.script, facts)


def _cannot_tell(script: Script, facts: Surroundings) -> Iterator[Finding]:
    if len(script.inits) != 1:
        seen = f"{len(script.inits)} calls of init_process_group" if script.inits else "no call of init_process_group"
        what = f"{seen} in the script: devices and timeouts were not looked at"
        mend = "say --backend and --timeout-s; see yourself that device_id is passed"
        yield found("script-cannot-tell", what=what, where=script.path, mend=mend)
        return
    init = script.inits[0]
    if init.backends is None and facts.job.backend is None:
        what = "the backend is decided at run time"
        yield found(
            "script-cannot-tell",
            what=what,
            where=f"{script.path}:{init.line}",
            mend="say --backend, such as --backend nccl",
        )
    if init.has_device_id is None:
        what = "arguments are passed on with **: whether device_id is among them is not seen"
        yield found("script-cannot-tell", what=what, where=f"{script.path}:{init.line}", mend="see it yourself")
