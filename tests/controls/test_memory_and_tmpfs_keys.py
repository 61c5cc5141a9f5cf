"""The keys of a container's memory: what they mean, and the one clear mistake for each wrong value."""

import msgspec
import pytest

from hangdrill.drill.scenario_checks import mistakes
from hangdrill.model.scenario import Scenario, Volume
from hangdrill.model.sizes import parse_size


def scenario(launcher: str = "container", survives: tuple[str, ...] = ("job-exit",), **job: object) -> Scenario:
    table = {"launcher": launcher, "workload": "all-reduce", **job}
    return msgspec.convert({"title": "t", "job": table, "expect": {"survives": survives}}, Scenario, strict=False)


def told(found: Scenario) -> list[str]:
    return [f"{problem.key}: {problem.what}" for problem in mistakes(found)]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("64k", 65536),
        ("64K", 65536),
        ("512m", 512 << 20),
        ("2g", 2 << 30),
        ("2GiB", 2 << 30),
        ("1 t", 1 << 40),
    ],
)
def test_size_is_read_in_powers_of_1024(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "k", "0", "-1", "1.5g", "2x", "2gg", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_tmpfs_is_a_volume_that_outlives_nothing() -> None:
    volume = Volume.parse("tmpfs:/mnt/small:size=64k")
    assert (volume.in_memory, volume.target, volume.size_bytes) == (True, "/mnt/small", 65536)
    job = scenario(volumes=("tmpfs:/mnt/small:size=64k", "dumps:/mnt/dumps")).job
    assert not job.is_on_a_volume("/mnt/small/a")
    assert job.is_on_a_volume("/mnt/dumps/a")
    assert Volume.parse("tmpfs:/mnt/small").size_bytes is None


@pytest.mark.parametrize("text", ["dumps:/mnt/dumps:size=64k", "tmpfs:/mnt/small:size=", "tmpfs:/mnt/small:size=big"])
def test_wrong_size_of_a_volume_is_one_mistake(text: str) -> None:
    assert [words.partition(":")[0] for words in told(scenario(volumes=(text,)))] == ["job.volumes"]


def test_memory_that_torch_does_not_fit_in_is_a_mistake_with_the_least() -> None:
    (problem,) = mistakes(scenario(memory="512m"))
    assert "512m is less than 2 ranks and torchrun need" in problem.what
    assert "768m" in problem.next_step
    assert mistakes(scenario(memory="768m")) == []


def test_only_a_container_has_a_memory_limit() -> None:
    assert told(scenario(launcher="bwrap", memory="2g")) == ["job.memory: bwrap sets no memory limit"]


def test_unreadable_memory_is_one_mistake() -> None:
    assert told(scenario(memory="lots")) == ['job.memory: "lots" is no size: write it as 64k, 512m or 2g']


def test_oom_kill_needs_a_limit_and_a_launcher_that_sets_one() -> None:
    assert told(scenario(survives=("oom-kill",))) == ["expect.survives: oom-kill needs a container with a memory limit"]
    assert told(scenario(survives=("oom-kill",), memory="2g")) == []
    assert told(scenario(launcher="bwrap", survives=("oom-kill",))) == [
        "expect.survives: bwrap cannot put a job through oom-kill"
    ]
