"""The user's own image as the root of a job: is it there, does its Python have torch, and what does the job get?

The job has the image's variables under those that hangdrill and the user name; nothing of this host's. The image's
entrypoint is not run. hangdrill pulls no image and removes none.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.launchers.box import Box, Mount
from hangdrill.launchers.container_job import ContainerJob, start_container
from hangdrill.launchers.engine import ContainerOrder, Engine, ImageFacts
from hangdrill.launchers.torchrun import PROBE, PROBE_DEADLINE_S
from hangdrill.model.errors import MachineError

__all__ = [
    "STREAMS",
    "GpusRefused",
    "ImageCall",
    "ImageTask",
    "calling",
    "check_image",
    "require_image",
    "start_in_image",
]

_WITH_FILES = '"$@" <"$0/in" >"$0/out" 2>"$0/err"; exit $?'
"""The shell stays: the container's first process would be deaf to signals that it does not handle, its own too."""
STREAMS = "hangdrill-image-"
"""Begins the name of a directory in /tmp; pid and ticks of the controller follow, by which `clean` finds its owner."""


class GpusRefused(MachineError):
    """The engine cannot give this host's GPUs to a container."""


class ImageTask(msgspec.Struct, frozen=True, kw_only=True):
    """A program to start in an image. environ: over the image's own variables; controller: for the label."""

    image: str
    run_id: str
    controller: str
    command: tuple[str, ...]
    python: str = ""
    environ: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = "/"
    box: Box = Box(mounts=(), links=(), own_dirs=(), devices=())
    memory_bytes: int | None = None
    gpus: bool = False


class ImageCall:
    """A running program whose output lies in files: what outlives it cannot keep us waiting."""

    def __init__(self, job: ContainerJob, directory: Path) -> None:
        self.job = job
        self._directory = directory

    def output(self) -> bytes:
        """What it has written to standard output so far."""
        return (self._directory / "out").read_bytes()

    def said_bytes(self) -> int:
        """The longer of both."""
        return max((self._directory / name).stat().st_size for name in ("out", "err"))

    def complaints(self) -> bytes:
        """The same of standard error."""
        return (self._directory / "err").read_bytes()


def require_image(engine: Engine, name: str) -> ImageFacts:
    """The image. MachineError, with the next step, when the engine has none of that name."""
    found = engine.image(name)
    if found is None:
        raise MachineError(
            f"the container engine has no image {name}",
            where="job.container.image",
            next_step=f"docker pull {name} (or podman pull): hangdrill pulls no image by itself",
        )
    return found


def start_in_image(engine: Engine, task: ImageTask) -> ContainerJob:
    """Start it; MachineError when the image is not there, or the engine refuses."""
    facts = require_image(engine, task.image)
    order = ContainerOrder(
        run_id=task.run_id,
        controller=task.controller,
        command=task.command,
        environ=_environ(facts.environ, task.environ),
        cwd=task.cwd,
        user=f"{os.getuid()}:{os.getgid()}",
        mounts=tuple((mount.source, mount.target, not mount.writable) for mount in task.box.mounts),
        tmpfs=tuple((each.target, each.size_bytes) for each in task.box.memory),
        memory_bytes=task.memory_bytes,
        image=facts.id,
        own_dirs=task.box.own_dirs,
        gpus=task.gpus,
    )
    try:
        return start_container(engine, order, task.box, python=task.python)
    except MachineError as error:
        raise _explained(error, task) from error


@contextlib.contextmanager
def calling(engine: Engine, task: ImageTask, *, stdin: bytes = b"") -> Iterator[ImageCall]:
    """Run a short program with files for its standard streams; the container is removed in any case."""
    with tempfile.TemporaryDirectory(prefix=f"{STREAMS}{task.controller.replace(':', '-')}-") as name:
        directory = Path(name)
        for stream, content in (("in", stdin), ("out", b""), ("err", b"")):
            (directory / stream).write_bytes(content)
        files = Mount(source=name, target=name, writable=True)
        command = ("/bin/sh", "-c", _WITH_FILES, name, *task.command)
        box = msgspec.structs.replace(task.box, mounts=(*task.box.mounts, files))
        job = start_in_image(engine, msgspec.structs.replace(task, command=command, box=box))
        try:
            yield ImageCall(job, directory)
        finally:
            job.remove()


def check_image(engine: Engine, task: ImageTask) -> None:
    """MachineError when the image, its Python, torch or torchrun is missing. task.command is not run."""
    python = task.python
    probe = msgspec.structs.replace(task, command=(python, "-c", PROBE), gpus=False)
    with calling(engine, probe) as call:
        code = call.job.wait(PROBE_DEADLINE_S)
        lines = call.output().decode(errors="replace").splitlines()
        said = (call.complaints().decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    where = "job.container"
    found = _answer(lines)
    if code != 0 or found is None:
        what = said if code is not None else f"no answer within {PROBE_DEADLINE_S:g} s"
        raise MachineError(
            f"the Python of the image does not work: {python} in {task.image}: {what}",
            where=where,
            next_step="name the image's Python (job.container.python, --python): a path in it, or a word on its PATH",
        )
    if found.get("torch") is None:
        raise MachineError(
            f"the image's Python has no torch: {python} in {task.image}",
            where=where,
            next_step="name an image that has torch, or the right Python in it (job.container.python, --python)",
        )
    if not found.get("torchrun"):
        raise MachineError(
            f"the torch of {python} in {task.image} was built without torch.distributed.run",
            where=where,
            next_step="use an image whose torch has distributed support",
        )


def _answer(lines: Sequence[str]) -> dict[str, object] | None:
    """The last line that is one: a Python may greet, and say good-bye."""
    for line in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict) and "torch" in found:
                return found
    return None


def _environ(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What is set over the image's own. Its PYTHONPATH stays behind ours; who is no user of the image needs a home."""
    found = dict(given)
    if "PYTHONPATH" in own and "PYTHONPATH" in given:
        found["PYTHONPATH"] = f"{given['PYTHONPATH']}:{own['PYTHONPATH']}"
    if os.getuid() != 0:
        for name, value in (("HOME", "/tmp"), ("USER", "hangdrill"), ("LOGNAME", "hangdrill")):
            if name not in own:
                found.setdefault(name, value)
    return found


def _explained(error: MachineError, task: ImageTask) -> MachineError:
    """The engine's refusals that have a cause in the image or the machine, with their next step."""
    text = error.what
    if "could not select device driver" in text or "nvidia.com/gpu" in text:
        hint = "install the NVIDIA Container Toolkit, and let the engine know of it"
        return GpusRefused("the container engine cannot give GPUs to a container", where=text, next_step=hint)
    if '"/bin/sh"' in text and ("no such file" in text or "not found" in text):
        hint = "use an image with a shell: it joins the job's output to its log"
        return MachineError(f"the image has no /bin/sh: {task.image}", where="job.container.image", next_step=hint)
    return error
