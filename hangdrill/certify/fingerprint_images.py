"""Read the fingerprint of a stack that is a container image: in a container of it, which is removed in any case."""

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill.certify.fingerprint_script import BOOT, Answer, answer_of, sources
from hangdrill.certify.stacks import Stack
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, own_id
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.box import Box, mounted_volumes
from hangdrill.launchers.engine import Engine, ImageFacts
from hangdrill.launchers.image import GpusRefused, ImageTask, calling, require_image
from hangdrill.model.scenario import Volume

__all__ = ["ask_image"]

GPU_CONTROL = Path("/dev/nvidiactl")
"""There where this host has NVIDIA's driver."""
MOST_BYTES = 64 * 1024 * 1024
FLOOD = 1 << 16
"""Stands for an exit code, and is none."""


def ask_image(
    stack: Stack, environ: Mapping[str, str], *, interrupt: Interrupt | None = None, deadline_s: float
) -> Answer:
    """What the image's Python says, and the engine of the image. environ: names the engine. Raises MachineError when
    there is no such image or the engine refuses, Interrupted."""
    engine = Engine(environ)
    facts = require_image(engine, stack.image)
    task = _task(stack, facts, deadline_s, gpus=GPU_CONTROL.exists())
    try:
        answer = _ask(engine, task, interrupt, deadline_s)
    except GpusRefused:  # then this stack has none, and what needs them says so
        answer = _ask(engine, msgspec.structs.replace(task, gpus=False), interrupt, deadline_s)
    of_image = {"image": stack.image, "image_id": facts.id, "image_digest": facts.digest}
    return msgspec.structs.replace(answer, facts={**answer.facts, **of_image} if answer.facts else {})


def _task(stack: Stack, facts: ImageFacts, deadline_s: float, *, gpus: bool) -> ImageTask:
    mounts = mounted_volumes((Volume.parse(text) for text in stack.mounts), "")
    run_id, controller = f"fingerprint-{secrets.token_hex(6)}", "{}:{}".format(*own_id())
    return ImageTask(
        image=facts.id,
        run_id=run_id,
        controller=controller,
        command=(stack.python, "-c", BOOT, f"{deadline_s:g}"),
        python=stack.python,
        environ={**stack.env, RUN_ID_VARIABLE: run_id, CONTROLLER_VARIABLE: controller},
        box=Box(mounts=mounts, links=(), own_dirs=(), devices=()),
        gpus=gpus,
    )


def _ask(engine: Engine, task: ImageTask, interrupt: Interrupt | None, deadline_s: float) -> Answer:
    with calling(engine, task, stdin=sources()) as call:

        def over() -> int | None:
            """Its exit code, also of one that is ended here since it says far too much."""
            return FLOOD if call.said_bytes() > MOST_BYTES else call.job.poll()

        code = Waiter(interrupt).until(over, deadline_s=deadline_s)
        if code == FLOOD:
            return Answer(error=f"{task.python} says more than {MOST_BYTES >> 20} MB: it is no Python")
        return answer_of(task.python, code, call.output(), call.complaints(), deadline_s=deadline_s)
