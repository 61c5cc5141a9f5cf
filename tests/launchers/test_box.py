"""What a container sees of the host: the environment read-only, the ranks' part of the run directory, the volumes."""

from pathlib import Path

import pytest
from box_requests import CHECKOUT, box_request, prepare_run, volume

from hangdrill.launchers.box import Mount, box_of, find_mounted, mounted_volumes
from hangdrill.model.scenario import Job, LauncherName, Volume


def sees(box, path) -> Path | None:
    return find_mounted(box.mounts, str(path))


def test_environment_is_seen_at_its_own_path_and_never_writable(tmp_path):
    box = box_of(box_request(prepare_run(tmp_path)))
    for path in (box_request(tmp_path).python, CHECKOUT / "hangdrill/rank", "/usr/bin"):
        place = sees(box, path)
        assert place is not None
        assert place.exists(), path
    writable = {mount.target for mount in box.mounts if mount.writable}
    assert writable == {f"{tmp_path}/run/{name}" for name in ("control", "sockets", "native")}


def test_evidence_tmp_and_home_are_not_the_jobs(tmp_path):
    run_dir = prepare_run(tmp_path)
    box = box_of(box_request(run_dir, environ={"HOME": "/home/somebody", "PATH": "/usr/bin"}))
    assert sees(box, run_dir / "evidence/manifest.json") is None
    assert {"/tmp", "/var/tmp", "/home/somebody"} <= set(box.own_dirs)
    assert sees(box, "/tmp/fr_0") is None


def test_script_in_tmp_is_seen_without_the_rest_of_tmp(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    box = box_of(box_request(prepare_run(tmp_path), target=str(script), cwd="/tmp"))
    assert sees(box, script) == script
    assert sees(box, "/tmp/other") is None


def test_packages_that_the_environment_finds_elsewhere_are_seen(tmp_path):
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    packages, base = tmp_path / "env/lib/python3.12/site-packages", tmp_path / "base/bin"
    for directory in (packages, base, tmp_path / "editable"):
        directory.mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {base}\n")
    (packages / "mine.pth").write_text(f"{tmp_path}/editable\nimport something\n")
    box = box_of(box_request(prepare_run(tmp_path), python=str(python)))
    for path in ("env/bin/python", "base/bin", "editable"):
        assert sees(box, tmp_path / path) == tmp_path / path


def test_named_volume_lies_in_the_run_directory_and_an_absolute_one_where_it_is():
    mounts = mounted_volumes([volume("dumps:/mnt/dumps"), volume("/data:/data:ro")], "/runs/a")
    assert mounts == (
        Mount(source="/runs/a/volumes/dumps", target="/mnt/dumps", writable=True),
        Mount(source="/data", target="/data"),
    )


def test_the_innermost_mount_decides():
    mounts = [Mount(source="/a", target="/x"), Mount(source="/b", target="/x/y")]
    assert find_mounted(mounts, "/x/y/z") == Path("/b/z")
    assert find_mounted(mounts, "/x/z") == Path("/a/z")
    assert find_mounted(mounts, "/xy") is None


@pytest.mark.parametrize(
    "text", ["dumps", ":/mnt", "dumps:", "dumps:mnt", "dumps:/", "a/b:/mnt", "../x:/mnt", "d:/mnt/../x", "d:/mnt:rx"]
)
def test_volume_that_is_not_well_written_is_refused(text):
    with pytest.raises(ValueError, match=r"must be|unknown option"):
        Volume.parse(text)


def test_job_knows_the_innermost_volume_of_a_path_and_takes_none_that_is_not_well_written():
    job = Job(launcher=LauncherName.BWRAP, volumes=("a:/m", "b:/m/deep:ro", "not well written"))
    assert job.contained
    assert job.volume_of("/m/deep/x") == Volume(source="b", target="/m/deep", read_only=True)
    assert job.volume_of("/m") == Volume(source="a", target="/m")
    assert job.volume_of("/elsewhere") is None
    assert (job.is_on_a_volume("/m/x"), job.is_on_a_volume("/m2")) == (True, False)
    assert not Job().contained
