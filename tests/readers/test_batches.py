"""What goes into a batch, and what crosses to another process."""

import os
from pathlib import Path

import pytest
from reader_tools import GLOO, jobs, path_jobs

from hangdrill.readers import batches
from hangdrill.readers.batches import Unseen, as_asked, in_batches, read_batch, sent, weight
from hangdrill.recorder import DumpJob, read_job


def test_batches_have_a_bound_of_jobs_and_keep_the_order() -> None:
    some = jobs(70)
    found = list(in_batches(some))
    assert [len(batch) for batch in found] == [32, 32, 6]
    assert [job for batch in found for job in batch] == some


def test_batches_have_a_bound_of_bytes_and_a_large_file_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 100)
    some = [DumpJob(rank=rank, shown="", data=bytes(size)) for rank, size in enumerate([60, 30, 20, 500, 1, 1])]
    assert [[job.rank for job in batch] for batch in in_batches(some)] == [[0, 1], [2], [3], [4, 5]]


def test_the_weight_is_the_files_or_nothing(tmp_path: Path) -> None:
    (job,) = path_jobs(tmp_path, 1)
    assert weight(job) == (GLOO / "fr_0").stat().st_size
    assert weight(DumpJob(rank=0, shown="", path=str(tmp_path / "gone"))) == 0
    assert weight(DumpJob(rank=0, shown="", path="a\0b")) == 0


def test_a_relative_path_is_read_anywhere_and_reported_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_jobs(tmp_path, 2)
    (tmp_path / "fr_1").write_bytes((GLOO / "fr_0").read_bytes()[:9])
    monkeypatch.chdir(tmp_path)
    some = [DumpJob(rank=rank, shown=f"fr_{rank}", path=f"fr_{rank}") for rank in range(2)]
    expected = [read_job(job) for job in some]
    out = tuple(sent(job) for job in some)
    monkeypatch.chdir("/")
    outcomes = read_batch(read_job, out)
    monkeypatch.chdir(tmp_path)
    assert list(outcomes) != expected
    assert [as_asked(job, outcome) for job, outcome in zip(some, outcomes, strict=True)] == expected


def test_a_file_that_a_worker_does_not_see_is_told_and_not_taken_for_a_dump(tmp_path: Path) -> None:
    gone = DumpJob(rank=0, shown="", path=str(tmp_path / "gone"))
    with pytest.raises(Unseen) as told:
        read_batch(read_job, (gone,))
    assert told.value.args == (gone.path, os.uname().nodename)
