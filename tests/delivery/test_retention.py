"""What deletes where: parsed from real rules, of a real bucket, and of files that a test has written."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from delivery_tools import courier_for, drive, make_evidence
from s3_labs import BUCKET

from hangdrill.checks.retained import judge_places
from hangdrill.cli import run_command
from hangdrill.delivery.cleanup import Cleanup, age_days, deletions_in
from hangdrill.delivery.lifecycle import deletions_of
from hangdrill.delivery.retention import look_at_place
from hangdrill.model.verdict import Verdict

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)
ON_DISK = "/dev/vda1 / ext4 rw 0 0\n"


def rules(tmp_path, text, *, name="tmp.conf", override=None):
    """tmpfiles.d of a host, as files."""
    for directory, content in (("lib", text), ("etc", override)):
        (tmp_path / directory).mkdir(exist_ok=True)
        if content is not None:
            (tmp_path / directory / name).write_text(content)
    reaper = tmp_path / "tmpreaper.conf"
    return Cleanup(tmpfiles=(str(tmp_path / "etc"), str(tmp_path / "lib")), tmpreaper=str(reaper))


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("10d", 10), ("1w2d", 9), ("12h", 0.5), ("30", 30 / 86400), ("~5d", 5), ("aAmMbB:7d", 7), ("0", 0),
        ("2min", 2 / 1440), ("-", None), ("", None), ("soon", None), ("3 days", None), ("1y", 365.25),
    ],
)  # fmt: skip
def test_an_age_is_read(text, days):
    assert age_days(text) == (None if days is None else pytest.approx(days))


@pytest.mark.parametrize(
    ("line", "path", "days"),
    [
        ("q /tmp 1777 root root 10d", "/tmp/evidence", [10]),
        ("q /tmp 1777 root root 10d", "/tmp", [10]),
        ("q /tmp 1777 root root 10d", "/tmporary", []),
        ("q /var/tmp 1777 root root 30d", "/tmp/evidence", []),
        ("e /scratch/*/dumps - - - 5d", "/scratch/me/dumps/run", [5]),
        ("d! /tmp/x - - - 2d", "/tmp/x", [2]),
        ("D /tmp 1777 root root -", "/tmp/evidence", [None]),
        ("D /tmp 1777 root root 3d", "/tmp/evidence", [3, None]),
        ("R /run/evidence", "/run/evidence", [None]),
        ("f /tmp/file - - - 1d", "/tmp/file", []),
        ("# q /tmp 1777 root root 10d", "/tmp/evidence", []),
        ("#q /tmp 1777 root root 10d", "/tmp/evidence", []),
        ("q /tmp 1777 root root 10d\nx /tmp/evidence", "/tmp/evidence/run", []),
        ("q /tmp 1777 root root 10d\nX /tmp/other", "/tmp/evidence", [10]),
        ("q /tmp 1777 root root 10d\nd /tmp/evidence 0700 me me 90d", "/tmp/evidence/run", [90]),
        ("q /tmp 1777 root root 10d\nd /tmp/evidence 0700 me me -", "/tmp/evidence/run", []),
        ("q /tmp 1777 root root 10d\nX /tmp/evidence", "/tmp/evidence/run", [10]),
        ("q /tmp 1777 root root 10d\nx /tmp", "/tmp/evidence", [10]),
        ("d /data/evidence - - - 3d\nx /data", "/data/evidence", [3]),
        ("e /data/evidence/* - - - 7d", "/data/evidence", [7]),
        ("e /data/*/llm - - - 7d", "/data/evidence", [7]),
        ("e /data/evidence/llm - - - -", "/data/evidence", []),
        ("e /data/other/* - - - 7d", "/data/evidence", []),
        ("R /data/evidence/*", "/data/evidence", [None]),
        ("broken", "/tmp", []),
    ],
)
def test_a_line_of_tmpfiles_d_deletes_where_it_reaches(tmp_path, line, path, days):
    found = deletions_in(Path(path), rules(tmp_path, line + "\n"))
    assert [rule.after_days for rule in found] == days


def test_a_file_in_etc_hides_the_one_in_usr_lib(tmp_path):
    cleanup = rules(tmp_path, "q /tmp - - - 10d\n", override="# nothing is deleted here\n")
    assert deletions_in(Path("/tmp/x"), cleanup) == ()


def test_the_rule_is_named_by_file_and_line(tmp_path):
    cleanup = rules(tmp_path, "# first\nq /tmp 1777 root root 10d\n")
    (rule,) = deletions_in(Path("/tmp/x"), cleanup)
    assert rule.source == f"{tmp_path}/lib/tmp.conf:2"


@pytest.mark.parametrize(
    ("text", "path", "days"),
    [
        ("TMPREAPER_TIME=7d\nTMPREAPER_DIRS='/tmp/. /scratch'\n", "/tmp/evidence", [7]),
        ("TMPREAPER_TIME=7d\nTMPREAPER_DIRS='/tmp/. /scratch'\n", "/scratch/evidence", [7]),
        ("TMPREAPER_TIME=7d\nTMPREAPER_DIRS='/tmp/.'\n", "/data/evidence", []),
        ("SHOWWARNING=true\nTMPREAPER_TIME=7d\nTMPREAPER_DIRS='/tmp/.'\n", "/tmp/evidence", []),
        ("TMPREAPER_TIME=7d\nTMPREAPER_DIRS=/tmp\nTMPREAPER_PROTECT_EXTRA='/tmp/evidence*'\n", "/tmp/evidence", []),
        ("TMPREAPER_TIME=3\nTMPREAPER_DIRS=/tmp\n", "/tmp/evidence", [3]),
    ],
)
def test_tmpreaper_deletes_where_it_is_told_to(tmp_path, text, path, days):
    cleanup = rules(tmp_path, "")
    Path(cleanup.tmpreaper).write_text(text)
    assert [rule.after_days for rule in deletions_in(Path(path), cleanup)] == days


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ({"Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}, [7]),
        ({"Filter": {"Prefix": "drills/"}, "Expiration": {"Days": 7}}, [7]),
        ({"Filter": {"Prefix": "drills/evidence/train/"}, "Expiration": {"Days": 7}}, [7]),
        ({"Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 7}}, []),
        ({"Prefix": "drills", "Expiration": {"Days": 7}}, [7]),
        ({"Filter": {"And": {"Prefix": "drills/", "ObjectSizeGreaterThan": 5}}, "Expiration": {"Days": 7}}, [7]),
        ({"Filter": {"And": {"Prefix": "drills/", "Tags": [{"Key": "a"}]}}, "Expiration": {"Days": 7}}, []),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 7}}, []),
        ({"Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}, []),
        ({"Filter": {"Prefix": ""}, "Transitions": [{"Days": 7, "StorageClass": "GLACIER"}]}, []),
        ({"Filter": {"Prefix": ""}, "NoncurrentVersionExpiration": {"NoncurrentDays": 7}}, []),
        ({"Filter": {"Prefix": ""}, "Expiration": {"ExpiredObjectDeleteMarker": True}}, []),
        ({"Filter": {"Prefix": ""}, "Expiration": {"Date": datetime(2026, 12, 5, tzinfo=timezone.utc)}}, [5]),
        ({"Filter": {"Prefix": ""}, "Expiration": {"Date": datetime(2020, 1, 1, tzinfo=timezone.utc)}}, [0]),
    ],
)
def test_a_lifecycle_rule_deletes_where_it_reaches(rule, days):
    found = deletions_of([{"ID": "r", "Status": "Enabled", **rule}], "dumps", "drills/evidence", now=NOW)
    assert [one.after_days for one in found] == days


def lifecycle(client, **rule):
    rules = [{"ID": "expire", "Status": "Enabled", **rule}]
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": rules})


def test_a_real_bucket_tells_its_rules(s3):
    client = s3.client()
    try:
        quiet = look_at_place(f"s3://{BUCKET}/kept", "delivered")
        assert (quiet.told, quiet.deletions) == (True, ())
        assert judge_places(30, (quiet,)).verdict is Verdict.PASS
        lifecycle(client, Filter={"Prefix": "kept/"}, Expiration={"Days": 7})
        found = look_at_place(f"s3://{BUCKET}/kept", "delivered")
        answer = judge_places(30, (found,))
        assert answer.verdict is Verdict.FAIL
        assert "lifecycle rule expire" in answer.detail
        assert "after 7 days" in answer.detail
        assert judge_places(7, (found,)).verdict is Verdict.PASS
    finally:
        client.delete_bucket_lifecycle(Bucket=BUCKET)


def test_a_bucket_that_does_not_say_is_not_known(seaweed, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    found = look_at_place(f"s3://{BUCKET}/kept", "delivered")
    assert not found.told
    assert "cannot be read" in found.why
    assert judge_places(30, (found,)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("url", ["memory://bucket/x", "nowhere://bucket/x"])
def test_a_store_that_cannot_be_asked_is_not_known(url):
    assert not look_at_place(url, "delivered").told


@pytest.mark.parametrize(
    ("mounts", "verdict", "words"),
    [
        (ON_DISK, Verdict.PASS, "ext4 on /"),
        (ON_DISK + "tmpfs /data tmpfs rw 0 0\n", Verdict.UNKNOWN, "gone at the next boot"),
        (ON_DISK + "nas:/x /data nfs4 rw 0 0\n", Verdict.UNKNOWN, "purge policy"),
        (ON_DISK.replace("ext4", "overlay"), Verdict.UNKNOWN, "a container's own layer"),
        ("", Verdict.UNKNOWN, "file system is not known"),
    ],
)
def test_what_a_directory_lies_on_decides_who_can_tell(tmp_path, mounts, verdict, words):
    place = look_at_place("/data/evidence", "evidence", cleanup=rules(tmp_path, ""), mounts=mounts)
    answer = judge_places(30, (place,))
    assert answer.verdict is verdict
    assert words in answer.detail


def test_where_a_link_leads_decides(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cleanup = rules(tmp_path, f"e {tmp_path}/real - - - 5d\n")
    place = look_at_place(str(tmp_path / "link"), "delivered", cleanup=cleanup, mounts=ON_DISK)
    assert [rule.after_days for rule in place.deletions] == [5]
    memory = f"{ON_DISK}tmpfs {tmp_path}/real tmpfs rw 0 0\n"
    place = look_at_place(str(tmp_path / "link"), "delivered", cleanup=rules(tmp_path, ""), mounts=memory)
    assert judge_places(30, (place,)).verdict is Verdict.UNKNOWN


def test_the_age_of_the_oldest_evidence_is_that_of_its_run(tmp_path):
    make_evidence(tmp_path / "e")
    drive(courier_for(tmp_path / "e", str(tmp_path / "there")))
    (tmp_path / "there" / "train" / "20250102T030405Z-hd-old").mkdir()
    (tmp_path / "there" / "other").mkdir()
    found = look_at_place(str(tmp_path / "there"), "delivered")
    assert found.oldest_ns == int(datetime(2025, 1, 2, 3, 4, 5, tzinfo=timezone.utc).timestamp() * 1e9)


def test_the_command_says_what_is_kept_and_judges_a_promise(tmp_path, capfd):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "pyproject.toml").touch()  # a directory is no scenario, whatever lies in it
    assert run_command(["retention", str(tmp_path / "kept")]) == 0
    assert "no promise to hold it against" in capfd.readouterr().out
    code = run_command(["retention", str(tmp_path / "kept"), "--keep-days", "30", "--json"])
    told = json.loads(capfd.readouterr().out)
    assert (code, told["promised_days"]) == ({"pass": 0, "fail": 1, "unknown": 2}[told["verdict"]], 30)
    assert told["kept"][0]["place"] == str(tmp_path / "kept")


def test_the_command_asks_a_real_bucket(seaweed, capfd):
    lifecycle(seaweed.client(), Filter={"Prefix": ""}, Expiration={"Days": 3})
    try:
        assert run_command(["retention", f"s3://{BUCKET}/x", "--keep-days", "30"]) == 1
    finally:
        seaweed.client().delete_bucket_lifecycle(Bucket=BUCKET)
    out = capfd.readouterr().out
    assert "FAIL" in out
    assert "lifecycle rule expire" in out


def test_the_command_takes_a_scenario_and_its_promise(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = '[job]\nworkload = "ddp"\n[recorder]\ndeliver_to = "there"\nkeep_days = 5\n'
    (tmp_path / "ours.toml").write_text('title = "x"\n' + text)
    run_command(["retention", "ours.toml"])
    out = capfd.readouterr().out
    assert f"delivered: {tmp_path / 'there'}" in out
    assert "5 days are promised" in out


def test_a_directory_that_is_not_mounted_is_no_misspelled_scenario(tmp_path, capfd):
    assert run_command(["retention", str(tmp_path / "not-mounted")]) == 64
    assert "no such directory, run or scenario" in capfd.readouterr().err


def test_the_command_refuses_a_secret(capfd):
    assert run_command(["retention", "ftp://me:hunter22@host/x"]) == 64
    assert "hunter22" not in capfd.readouterr().err


def test_a_promise_that_nobody_answered_for_is_unknown(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("hangdrill.delivery.inspection.sys.executable", "/nowhere/python")
    assert run_command(["retention", str(tmp_path), "--keep-days", "30"]) == 2
    assert "UNKNOWN  30 days are promised, and nobody tells" in capfd.readouterr().out
