"""The way out is looked at without writing anything: a directory, its mount, a hook."""

import pytest

from hangdrill.model.scenario import Incident, Job, Recorder, Scenario, Trigger
from hangdrill.preflight.way_out import look_at_way_out


def look(tmp_path, *, recorder=None, incident=None, environ=None):
    scenario = Scenario(
        title="x", job=Job(), recorder=Recorder(**(recorder or {})), incident=Incident(**(incident or {}))
    )
    return look_at_way_out(scenario, {"PATH": "/usr/bin:/bin", **(environ or {})}, str(tmp_path / "runs"))


def test_a_directory_that_can_be_made_is_fine_and_is_not_made(tmp_path):
    found = look(tmp_path, recorder={"deliver_to": str(tmp_path / "there")})
    assert (found.problem, found.deliver_to) == ("", str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


def test_a_volume_that_is_not_mounted_is_said(tmp_path):
    found = look(tmp_path, recorder={"deliver_to": str(tmp_path / "mnt" / "dumps")})
    assert "does not exist" in found.problem
    assert "mount the volume" in found.mend


def test_an_unknown_protocol_is_said(tmp_path):
    assert "no file system is known" in look(tmp_path, recorder={"deliver_to": "nowhere://x"}).problem


def test_a_promise_is_looked_at_where_the_evidence_is_kept(tmp_path):
    (place,) = look(tmp_path, recorder={"keep_days": 30.0}).kept
    assert (place.place, place.what) == (str(tmp_path / "runs"), "evidence")


def test_without_a_target_and_a_promise_nobody_is_asked(tmp_path):
    assert look(tmp_path).kept == ()
    assert look(tmp_path, recorder={"trigger": Trigger.NATIVE, "keep_days": 3.0}).kept == ()


@pytest.mark.parametrize(("command", "missing"), [("sh", ""), ("/bin/sh", ""), ("no-such-hook", "no-such-hook")])
def test_a_hook_that_is_not_there_is_found_out(tmp_path, command, missing):
    assert look(tmp_path, incident={"command": (command, "x")}).hook_missing == missing


def test_a_hook_that_may_not_be_run_is_found_out(tmp_path):
    (tmp_path / "hook").write_text("#!/bin/sh\n")
    assert look(tmp_path, incident={"command": (str(tmp_path / "hook"),)}).hook_missing
    (tmp_path / "hook").chmod(0o700)
    assert not look(tmp_path, incident={"command": (str(tmp_path / "hook"),)}).hook_missing


def test_a_variable_of_a_webhook_that_is_not_set_is_found_out(tmp_path):
    assert look(tmp_path, incident={"webhook": "$CHAT"}).webhook_unset == "$CHAT"
    assert look(tmp_path, incident={"webhook": "$CHAT"}, environ={"CHAT": "https://x"}).webhook_unset == ""
    assert look(tmp_path, incident={"webhook": "https://x"}).webhook_unset == ""
