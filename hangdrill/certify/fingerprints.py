"""Read the fingerprint of a stack: the sources of `hangdrill/rank/fingerprint` go to its Python by standard input.

So nothing is installed in the stack, and the "Python" may be any program that runs one: a wrapper around
`docker run -i`, `srun` or `ssh`. The answer comes in parts; what came before a crash is kept.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec

from hangdrill.certify.stacks import Stack
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, own_id
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.agent_path import rank_package
from hangdrill.model.fingerprint import Fingerprint

__all__ = ["DEADLINE_S", "LEAST_TORCH", "Answer", "ask", "read_stack"]

DEADLINE_S = 180.0
MOST_BYTES = 64 * 1024 * 1024
"""The longest answer: one of 2000 packages has a megabyte."""
LEAST_TORCH = (2, 11)
LEAST_PYTHON = (3, 10)
MARK = "hangdrill.fingerprint "
PARTS = ("packages", "changed", "torch_files", "machine", "elf", "extensions", "main")
HOME = "hangdrill.rank.fingerprint"

FLOOD = 1 << 16
"""Stands for an exit code, and is none."""

_BOOT = """
import json, sys, types
if sys.version_info < (3, 10):
    sys.exit("hangdrill needs Python 3.10 or newer, this is " + sys.version.split()[0])
for name, text in json.load(sys.stdin):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules[name].main()
"""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a Python said. facts: the parts laid over each other; error: why there are none, or no more."""

    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    error: str = ""


def read_stack(
    name: str,
    python: str,
    *,
    env: Mapping[str, str],
    environ: Mapping[str, str],
    interrupt: Interrupt | None = None,
    deadline_s: float = DEADLINE_S,
) -> Stack:
    """The stack with its fingerprint, or with why it has none and what to do. Raises Interrupted only."""
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
    if "python" not in answer.facts:
        return _missing(stack, answer.error, "name the Python of an environment, VENV/bin/python")
    try:
        fingerprint = msgspec.convert(answer.facts, Fingerprint)
    except msgspec.ValidationError as error:
        return _missing(stack, f"{python} answered what is not understood: {error}", "report it: a bug in hangdrill")
    if fingerprint.torch_error and answer.error:
        fingerprint = msgspec.structs.replace(fingerprint, torch_error=answer.error)
    return _judged(msgspec.structs.replace(stack, fingerprint=fingerprint))


def ask(
    python: str, environ: Mapping[str, str], *, interrupt: Interrupt | None = None, deadline_s: float = DEADLINE_S
) -> Answer:
    """Run the script to its end, at most `deadline_s`; all that it started is ended in any case. Files and no pipes:
    what outlives it cannot keep us waiting."""
    run_id = f"fingerprint-{secrets.token_hex(6)}"
    supervisor = Supervisor(run_id, own_id())
    owned = {**environ, RUN_ID_VARIABLE: run_id, CONTROLLER_VARIABLE: "{}:{}".format(*own_id())}
    with TemporaryFile() as sources, TemporaryFile() as output, TemporaryFile() as complaints:
        sources.write(_sources())
        sources.seek(0)
        try:
            child = subprocess.Popen(
                [python, "-c", _BOOT],
                env=owned,
                cwd="/",
                stdin=sources,
                stdout=output,
                stderr=complaints,
                start_new_session=True,
            )
        except OSError as error:
            return Answer(error=f"{python} does not start: {error.strerror}")
        supervisor.adopt([child.pid])

        def over() -> int | None:
            """Its exit code, also of one that is ended here since it says far too much."""
            return FLOOD if max(_size(output), _size(complaints)) > MOST_BYTES else child.poll()

        try:
            code = Waiter(interrupt).until(over, deadline_s=deadline_s)
        finally:
            supervisor.kill(Grace())
            child.wait()
        if code == FLOOD:
            return Answer(error=f"{python} says more than {MOST_BYTES >> 20} MB: it is no Python")
        output.seek(0)
        complaints.seek(0)
        facts = _facts(output.read())
        if code is None:
            return Answer(facts=facts, error=f"{python} gave no answer within {deadline_s:g} s")
        return Answer(facts=facts, error=_why(python, code, complaints.read()) or _silent(python, facts))


def _silent(python: str, facts: Mapping[str, Any]) -> str:
    return "" if facts else f"{python} ended without an answer: it is no Python"


def _facts(output: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in output.decode(errors="replace").splitlines():
        if line.startswith(MARK):
            try:
                facts.update(msgspec.json.decode(line[len(MARK) :], type=dict))
            except (msgspec.DecodeError, RecursionError):  # the last one may be cut
                continue
    return facts


def _why(python: str, code: int, complaints: bytes) -> str:
    """Why it ended as it did; empty when it ended well."""
    if code == 0:
        return ""
    if code < 0:
        return f"{python} was ended by {_signal_name(-code)}"
    lines = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"{python} ended with exit code {code}"


def _signal_name(number: int) -> str:
    """A real-time signal has no name of its own."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _sources() -> bytes:
    """[name, text] of the modules in the order in which they import each other; packages as empty modules."""
    home = rank_package() / "fingerprint"
    empty = [("hangdrill", ""), ("hangdrill.rank", ""), (HOME, "")]
    parts = [(f"{HOME}.{part}", Path(home / f"{part}.py").read_text(encoding="utf-8")) for part in PARTS]
    return json.dumps([*empty, *parts]).encode()


def _judged(stack: Stack) -> Stack:
    """Whether jobs can run on it."""
    fingerprint = stack.fingerprint
    if fingerprint is None:
        return stack
    pip = f"{stack.python} -m pip install"
    if not fingerprint.torch:
        return _missing(stack, f"{stack.python} has no torch", f"install it there: {pip} torch==VERSION")
    if fingerprint.torch_error:
        why = f"torch {fingerprint.torch} of {stack.python} does not import: {fingerprint.torch_error}"
        return _missing(stack, why, f"mend that environment: {pip} --force-reinstall torch=={fingerprint.torch}")
    release = fingerprint.backends_release
    if release is not None and release < LEAST_TORCH:
        wanted = ".".join(map(str, LEAST_TORCH))
        return _missing(stack, f"torch {fingerprint.torch} is older than {wanted}", f"use torch {wanted} or newer")
    return stack


def _missing(stack: Stack, why: str, next_step: str) -> Stack:
    return msgspec.structs.replace(stack, missing=re.sub(r"\s+", " ", why).strip(), next_step=next_step)
