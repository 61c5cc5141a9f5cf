"""A stack that is a container image, with a real engine: its fingerprint, what is missing, and what verify says."""

import sys

import msgspec
import pytest
from image_labs import NAME, made_image, mounts_of_this_host

from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.verifying import _stack as ask_stack
from hangdrill.drill.waiting import Interrupt
from hangdrill.launchers.engine import Engine
from hangdrill.model.errors import Interrupted
from hangdrill.model.fingerprint import Fingerprint, changes
from hangdrill.model.verdict import Verdict

ENVIRON = {"PATH": "/usr/bin:/bin"}
"""Of hangdrill; the image has no other, so both sides have the same variables."""


@pytest.fixture
def engine(docker_engine):
    return docker_engine


@pytest.fixture
def image(engine, tmp_path):
    with made_image(engine, tmp_path) as name:
        yield name


@pytest.fixture
def read(engine, tmp_path):
    """Reads the stack of an image; nothing of it may be left."""

    def read_one(image, *, python=sys.executable, mounts=None, **given):
        mounts = mounts_of_this_host(tmp_path) if mounts is None else mounts
        env = {"NCCL_DEBUG": "INFO"}
        try:
            return read_stack(
                "candidate", python, env=env, environ={**ENVIRON, **engine}, image=image, mounts=mounts, **given
            )
        finally:
            assert Engine(engine).runs() == []

    return read_one


@pytest.mark.torchrun
def test_the_fingerprint_of_an_image_is_that_of_the_same_environment_but_for_the_image(image, read):
    of_image = read(image)
    of_host = read_stack("candidate", sys.executable, env={"NCCL_DEBUG": "INFO"}, environ=ENVIRON)
    assert (of_image.missing, of_host.missing) == ("", "")
    assert [change.what for change in changes(of_host.fingerprint, of_image.fingerprint)] == ["image"]
    assert of_image.fingerprint.image == NAME
    assert of_image.fingerprint.image_id.startswith("sha256:")
    assert (of_image.fingerprint.host, of_image.fingerprint.network) == (
        of_host.fingerprint.host,
        of_host.fingerprint.network,
    )
    assert of_image.fingerprint.container.startswith("docker")


@pytest.mark.torchrun
def test_a_receipt_is_stale_once_the_tag_names_another_image(image, read, engine, tmp_path):
    record = read(image).record()
    environ = {**ENVIRON, **engine}
    assert ask_stack(record, environ, None, None).verdict is Verdict.PASS
    with made_image(engine, tmp_path, changes=["ENV HD_OF_IMAGE=other", "ENV PATH=/usr/bin:/bin"]):
        answer = ask_stack(record, environ, None, None)
    assert answer.verdict is Verdict.FAIL
    assert "image" in answer.detail


@pytest.mark.torchrun
def test_from_within_whether_it_is_the_certified_image_is_unknown(image, read, engine):
    record = read(image).record()
    answer = ask_stack(record, ENVIRON, sys.executable, None)
    assert answer.verdict is Verdict.UNKNOWN
    assert NAME in answer.detail


def test_an_image_that_is_not_there_says_what_to_pull(read):
    found = read("registry.invalid/none:1")
    assert found.fingerprint is None
    assert "no image registry.invalid/none:1" in found.missing
    assert found.next_step.startswith("docker pull registry.invalid/none:1")


def test_a_python_that_is_not_in_the_image_is_named(image, read):
    found = read(image, python="python9.99")
    assert "python9.99" in found.missing
    assert "the image's Python" in found.next_step


def test_an_image_without_torch_has_a_fingerprint_and_does_not_work(image, read, tmp_path):
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    found = read(image, python=str(bare), mounts=(*mounts_of_this_host(tmp_path), f"{bare}:{bare}:ro"))
    assert found.missing == f"{bare} in {NAME} has no torch"
    assert found.fingerprint is not None
    assert found.fingerprint.image == NAME


def test_an_engine_that_does_not_answer_is_said(tmp_path):
    environ = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    found = read_stack("candidate", "", env={}, environ=environ, image="train:1")
    assert "no container engine listens there" in found.missing
    assert found.python == "python3"


def test_a_python_of_an_image_that_never_answers_is_given_up(image, read, tmp_path):
    sleepy = tmp_path / "sleepy-python"
    sleepy.write_text("#!/bin/sh\nexec sleep 600\n")
    sleepy.chmod(0o755)
    mounts = (*mounts_of_this_host(tmp_path), f"{sleepy}:{sleepy}:ro")
    found = read(image, python=str(sleepy), mounts=mounts, deadline_s=2.0)
    assert "gave no answer within 2 s" in found.missing


def test_a_python_of_an_image_that_dies_of_a_signal_says_which(image, read, tmp_path):
    dying = tmp_path / "dying-python"
    dying.write_text("#!/bin/sh\nkill -ABRT $$\n")
    dying.chmod(0o755)
    found = read(image, python=str(dying), mounts=(*mounts_of_this_host(tmp_path), f"{dying}:{dying}:ro"))
    assert found.missing == f"{dying} was ended by SIGABRT"


def test_an_interrupt_leaves_no_container(image, read):
    interrupt = Interrupt()
    interrupt.request()
    with pytest.raises(Interrupted):
        read(image, interrupt=interrupt)


def test_only_the_images_id_and_digest_are_of_its_identity():
    bare = Fingerprint(python="3.12.0", torch="2.15.0")
    named = msgspec.structs.replace(bare, image="a:1", image_id="sha256:1", image_digest="r/a@sha256:2")
    assert "image" not in bare.identity()
    assert {what: named.identity()[what] for what in ("image", "image.digest")} == {
        "image": "sha256:1",
        "image.digest": "sha256:2",
    }
    pushed = msgspec.structs.replace(named, image_digest="")
    assert (changes(pushed, named), changes(named, pushed)) == ((), ())
    again = msgspec.structs.replace(named, image_digest="r/a@sha256:3")
    assert [one.what for one in changes(named, again)] == ["image.digest"]
    other = msgspec.structs.replace(pushed, image_id="sha256:9")
    assert [one.what for one in changes(named, other)] == ["image", "image.digest"]
    other_name = msgspec.structs.replace(named, image="mirror/a:1", image_digest="mirror/a@sha256:2")
    assert other_name.digest == named.digest
