"""Why a dump is missing or cut, by the place where torch writes: each reason from the facts, and none without them."""

import msgspec
import pytest
from healthy_runs import PREFIX, lose_rank, mutate, native_run, scenario, with_dump

from hangdrill.checks import run_checks
from hangdrill.drill.places import look_at_place
from hangdrill.model.run import CheckResult, PlaceFacts, RecordedRun
from hangdrill.model.scenario import LauncherName, Trigger
from hangdrill.model.verdict import Verdict

DIRECTORY = PREFIX.rpartition("/")[0]
GOOD = PlaceFacts(
    when="collected",
    path=DIRECTORY,
    exists=True,
    is_directory=True,
    writable=True,
    read_only=False,
    file_system="ext4",
    mount_point="/",
    free_bytes=1 << 40,
    total_bytes=1 << 41,
)


def lost(*places: PlaceFacts, **job: object) -> RecordedRun:
    """A native run of which nothing arrived, and what was seen of the place."""
    run = native_run(scenario=scenario(recorder={"trigger": Trigger.NATIVE}, job=job))
    for rank in range(4):
        run = lose_rank(run, rank)
    return mutate(run, places=places)


def missing(run: RecordedRun) -> CheckResult:
    return next(result for result in run_checks(run) if result.name == "every-rank-dumped")


REASONS = {
    "there is no directory": (
        mutate(GOOD, exists=False, is_directory=False, writable=False),
        "does not exist, and torch",
    ),
    "it is a file": (mutate(GOOD, is_directory=False, writable=False), f"{DIRECTORY} is no directory"),
    "another user's": (mutate(GOOD, writable=False), f"{DIRECTORY} may not be written by uid 1000"),
    "read-only": (
        mutate(GOOD, read_only=True, writable=False),
        f"{DIRECTORY} is on a read-only file system, mounted on /",
    ),
    "full": (mutate(GOOD, free_bytes=0, total_bytes=65536), f"0 bytes of 64.0 KiB are free in {DIRECTORY} (ext4)"),
    "one name": (mutate(GOOD, names=("fr_",)), f"all ranks wrote one file, {PREFIX}"),
}


@pytest.mark.parametrize(("place", "words"), REASONS.values(), ids=REASONS)
def test_reason_of_the_place_is_told_with_its_mend(place: PlaceFacts, words: str) -> None:
    result = missing(lost(place))
    assert result.verdict is Verdict.FAIL
    assert words in result.detail
    assert result.mend


@pytest.mark.parametrize("places", [(), (GOOD,), (PlaceFacts(when="collected", path=DIRECTORY),)])
def test_good_or_unseen_place_is_blamed_for_nothing(places: tuple[PlaceFacts, ...]) -> None:
    detail = missing(lost(*places)).detail
    assert not any(words in detail for _, words in REASONS.values())


def test_later_look_that_saw_nothing_does_not_hide_an_earlier_one() -> None:
    running = mutate(GOOD, when="running", read_only=True, writable=False)
    assert "read-only" in missing(lost(running, PlaceFacts(when="collected", path=DIRECTORY))).detail


def test_home_that_is_mounted_read_only_is_called_so() -> None:
    job = {"launcher": LauncherName.BWRAP, "volumes": ("home:/home/me:ro",), "env": {"HOME": "/home/me"}}
    run = mutate(lost(**job), dump_prefix="/home/me/dumps/fr_")
    assert "/home/me/dumps is in the home directory, which is on a read-only file system" in missing(run).detail


def test_dynamic_file_name_is_blamed_only_when_no_rank_has_its_own() -> None:
    job = {"env": {"TORCH_FR_DUMP_DYNAMIC_FILE_NAME": "1"}}
    assert "TORCH_FR_DUMP_DYNAMIC_FILE_NAME leaves the rank out" in missing(lost(**job)).detail
    assert "DYNAMIC" not in missing(lost(mutate(GOOD, names=("fr_0", "fr_1")), **job)).detail


def test_collectors_own_road_is_never_explained_by_the_place_of_native_dumps() -> None:
    run = lost(mutate(GOOD, exists=False))
    collector = msgspec.structs.replace(run.scenario.recorder, trigger=Trigger.COLLECTOR)
    run = mutate(run, scenario=msgspec.structs.replace(run.scenario, recorder=collector))
    assert "does not exist" not in missing(run).detail


def cut(*places: PlaceFacts) -> CheckResult:
    run = mutate(with_dump(native_run(), 2, salvaged=True, cut_at_byte=4096), places=places)
    return next(result for result in run_checks(run) if result.name == "parses")


def test_cut_dump_is_told_from_a_full_disk_by_what_was_free() -> None:
    assert "fr_2 is cut at byte 4096; 4 operations salvaged: the disk is full" in cut(mutate(GOOD, free_bytes=0)).detail
    assert "1024.0 GiB were free" in cut(GOOD).detail
    assert "the writer was ended in the middle" in cut(GOOD).detail
    assert cut().detail.endswith("4 operations salvaged")


def test_look_at_a_directory_of_this_host(tmp_path) -> None:
    (tmp_path / "fr_0").touch()
    (tmp_path / "other").touch()
    found = look_at_place(f"{tmp_path}/fr_", when="collected", process=None)
    assert (found.exists, found.is_directory, found.writable, found.read_only) == (True, True, True, False)
    assert found.names == ("fr_0",)
    assert found.free_bytes
    gone = look_at_place(f"{tmp_path}/none/fr_", when="collected", process=None)
    assert (gone.exists, gone.writable) == (False, False)


def test_place_that_only_this_host_sees_says_nothing_of_the_jobs_rights(tmp_path) -> None:
    found = look_at_place("/mnt/x/fr_", when="collected", process=None, locate=lambda _: tmp_path)
    assert (found.path, found.exists, found.writable, found.read_only) == ("/mnt/x", True, None, None)
    nowhere = look_at_place("/mnt/x/fr_", when="collected", process=None, locate=lambda _: None)
    assert nowhere == PlaceFacts(when="collected", path="/mnt/x")
