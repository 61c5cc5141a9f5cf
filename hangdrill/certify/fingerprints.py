"""Read the fingerprint of a stack: the sources of `hangdrill/rank/fingerprint` go to its Python by standard input.

So nothing is installed in the stack, and the "Python" may be one in a container image, or any program that runs one: a
wrapper around `srun` or `ssh`. The answer comes in parts; what came before a crash is kept.
"""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import msgspec

from hangdrill.certify.fingerprint_images import ask_image
from hangdrill.certify.fingerprint_script import BOOT, Answer, answer_of, sources
from hangdrill.certify.stacks import Stack
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, own_id
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.model.container import IMAGE_PYTHON
from hangdrill.model.errors import MachineError
from hangdrill.model.fingerprint import Fingerprint

__all__ = ["DEADLINE_S", "LEAST_TORCH", "Answer", "Heard", "ask", "hear", "read_stack"]

DEADLINE_S = 180.0
MOST_BYTES = 64 * 1024 * 1024
"""The longest answer: one of 2000 packages has a megabyte."""
LEAST_TORCH = (2, 11)
FLOOD = 1 << 16
"""Stands for an exit code, and is none."""


def read_stack(
    name: str,
    python: str,
    *,
    env: Mapping[str, str],
    environ: Mapping[str, str],
    interrupt: Interrupt | None = None,
    deadline_s: float = DEADLINE_S,
    image: str = "",
    mounts: Sequence[str] = (),
) -> Stack:
    """The stack with its fingerprint, or with why it has none and what to do. Raises Interrupted only.

    image: that the stack is, with mounts ("SOURCE:TARGET[:ro]"); python is then in it, and environ names the engine.
    """
    if image:
        stack = Stack(name=name, python=python or IMAGE_PYTHON, env=dict(env), image=image, mounts=tuple(mounts))
        return _of_image(stack, environ, interrupt, deadline_s)
    stack = Stack(name=name, python=python, env=dict(env))
    found = shutil.which(python, path=environ.get("PATH"))
    if found is None:
        return _missing(
            stack,
            f"there is no Python at {python}",
            f"make the environment, or name another Python for the {name} in the plan",
        )
    stack = msgspec.structs.replace(stack, python=os.path.abspath(found))  # noqa: PTH100 - links must stay: venvs are links
    answer = ask(stack.python, stack.environ(environ), interrupt=interrupt, deadline_s=deadline_s)
    return _with_facts(stack, answer, "name the Python of an environment, VENV/bin/python")


def _of_image(stack: Stack, environ: Mapping[str, str], interrupt: Interrupt | None, deadline_s: float) -> Stack:
    """The same in a container of the image; what the engine says of the image belongs to the facts."""
    try:
        answer = ask_image(stack, environ, interrupt=interrupt, deadline_s=deadline_s)
    except MachineError as error:
        return _missing(stack, f"{error.what}" if not error.where else f"{error.where}: {error.what}", error.next_step)
    return _with_facts(stack, answer, "name the image's Python: a path in it, or a word on its PATH")


def _with_facts(stack: Stack, answer: Answer, next_step: str) -> Stack:
    """next_step: when nothing answered."""
    if "python" not in answer.facts:
        return _missing(stack, answer.error, next_step)
    try:
        fingerprint = msgspec.convert(answer.facts, Fingerprint)
    except msgspec.ValidationError as error:
        why = f"{stack.python} answered what is not understood: {error}"
        return _missing(stack, why, "report it: a bug in hangdrill")
    if fingerprint.torch_error and answer.error:
        fingerprint = msgspec.structs.replace(fingerprint, torch_error=answer.error)
    return _judged(msgspec.structs.replace(stack, fingerprint=fingerprint))


def ask(
    python: str, environ: Mapping[str, str], *, interrupt: Interrupt | None = None, deadline_s: float = DEADLINE_S
) -> Answer:
    """Run the script that reads the fingerprint."""
    try:
        heard = hear(
            python, (BOOT, f"{deadline_s:g}"), environ, stdin=sources(), interrupt=interrupt, deadline_s=deadline_s
        )
    except OSError as error:
        return Answer(error=f"{python} does not start: {error.strerror}")
    if heard.code == FLOOD:
        return Answer(error=f"{python} says more than {MOST_BYTES >> 20} MB: it is no Python")
    return answer_of(python, heard.code, heard.output, heard.complaints, deadline_s=deadline_s)


class Heard(NamedTuple):
    """What a program said. code: its exit code, None when it was not over in time, FLOOD when it said far too much."""

    code: int | None
    output: bytes
    complaints: bytes


def hear(
    python: str,
    script: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: bytes = b"",
    interrupt: Interrupt | None = None,
    deadline_s: float = DEADLINE_S,
) -> Heard:
    """Run a script with its arguments to its end, at most `deadline_s`; all that it started is ended in any case.

    Files and no pipes: what outlives it cannot keep us waiting. Raises OSError when it does not start, Interrupted.
    """
    run_id = f"fingerprint-{secrets.token_hex(6)}"
    supervisor = Supervisor(run_id, own_id())
    owned = {**environ, RUN_ID_VARIABLE: run_id, CONTROLLER_VARIABLE: "{}:{}".format(*own_id())}
    with TemporaryFile() as written, TemporaryFile() as output, TemporaryFile() as complaints:
        written.write(stdin)
        written.seek(0)
        child = subprocess.Popen(
            [python, "-c", *script],
            env=owned,
            cwd="/",
            stdin=written,
            stdout=output,
            stderr=complaints,
            start_new_session=True,
        )
        supervisor.adopt([child.pid])

        def over() -> int | None:
            """Its exit code, also of one that is ended here since it says far too much."""
            return FLOOD if max(_size(output), _size(complaints)) > MOST_BYTES else child.poll()

        try:
            code = Waiter(interrupt).until(over, deadline_s=deadline_s)
        finally:
            supervisor.kill(Grace())
            child.wait()
        output.seek(0)
        complaints.seek(0)
        return Heard(code, output.read(MOST_BYTES), complaints.read(MOST_BYTES))


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _judged(stack: Stack) -> Stack:
    """Whether jobs can run on it."""
    fingerprint = stack.fingerprint
    if fingerprint is None:
        return stack
    pip = f"{stack.python} -m pip install"
    if stack.image:
        pip = f"in a new image, {pip}"
    if not fingerprint.torch:
        return _missing(stack, f"{stack.where} has no torch", f"install it there: {pip} torch==VERSION")
    if fingerprint.torch_error:
        why = f"torch {fingerprint.torch} of {stack.where} does not import: {fingerprint.torch_error}"
        return _missing(stack, why, f"mend that environment: {pip} --force-reinstall torch=={fingerprint.torch}")
    release = fingerprint.backends_release
    if release is not None and release < LEAST_TORCH:
        wanted = ".".join(map(str, LEAST_TORCH))
        return _missing(stack, f"torch {fingerprint.torch} is older than {wanted}", f"use torch {wanted} or newer")
    return stack


def _missing(stack: Stack, why: str, next_step: str) -> Stack:
    return msgspec.structs.replace(stack, missing=re.sub(r"\s+", " ", why).strip(), next_step=next_step)
