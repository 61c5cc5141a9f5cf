"""The controller sees itself what was delivered: a changed or missing object is found, a store that hangs is said."""

import os
import uuid

import pytest
from delivery_tools import courier_for, drive, make_evidence
from s3_labs import BUCKET

from hangdrill.delivery.inspection import Question, ask
from hangdrill.delivery.record import find_records


@pytest.fixture
def delivered(seaweed, tmp_path):
    """Evidence in a real bucket: its directory, its record, and another client."""
    make_evidence(tmp_path / "evidence", ranks=2)
    record = drive(courier_for(tmp_path / "evidence", f"s3://{BUCKET}/{uuid.uuid4().hex}"))
    assert record.complete
    return tmp_path / "evidence", record, seaweed.client()


def key(one):
    return one.url.removeprefix(f"s3://{BUCKET}/")


def facts(evidence, **more):
    return {one.path: one for one in ask(Question(evidence=str(evidence), **more), os.environ).objects}


def test_what_is_there_is_read_with_its_hash(delivered):
    evidence, record, _ = delivered
    found = facts(evidence)
    assert {path: (one.bytes, one.sha256, one.exists) for path, one in found.items()} == {
        one.path: (one.bytes, one.sha256, True) for one in record.artifacts
    }


def test_objects_that_were_changed_or_removed_are_found(delivered):
    evidence, record, client = delivered
    client.put_object(Bucket=BUCKET, Key=key(record.artifacts[0]), Body=b"tampered")
    client.delete_object(Bucket=BUCKET, Key=key(record.artifacts[1]))
    found = facts(evidence)
    assert found[record.artifacts[0].path].sha256 != record.artifacts[0].sha256
    assert found[record.artifacts[1].path].exists is False
    assert found["manifest.json"].exists is True


def test_a_store_that_hangs_is_not_waited_for(delivered, seaweed):
    evidence, record, _ = delivered
    with seaweed.stopped():
        answer = ask(Question(evidence=str(evidence), within_s=1.0), os.environ)
    assert {one.exists for one in answer.objects} == {None}
    assert len(answer.objects) == len(record.artifacts)
    assert answer.deliveries == (record,)


def test_a_target_is_looked_at_without_writing(seaweed):
    assert ask(Question(look=f"s3://{BUCKET}/x"), os.environ).problem == ""
    assert "there is no bucket" in ask(Question(look="s3://no-such-bucket-at-all/x"), os.environ).problem
    wrong = {**os.environ, "AWS_SECRET_ACCESS_KEY": "a-wrong-secret"}
    problem = ask(Question(look=f"s3://{BUCKET}/x"), wrong).problem
    assert "refuses these credentials" in problem
    assert "a-wrong-secret" not in problem


def test_evidence_of_several_hosts_is_found(tmp_path):
    for node in ("node0", "node1"):
        make_evidence(tmp_path / "evidence" / node)
        drive(courier_for(tmp_path / "evidence" / node, str(tmp_path / node)))
    assert [place.name for place in find_records(tmp_path / "evidence")] == ["node0", "node1"]
    assert len(ask(Question(evidence=str(tmp_path / "evidence")), os.environ).objects) == 6


def test_nothing_recorded_is_nothing_found(tmp_path):
    answer = ask(Question(evidence=str(tmp_path)), os.environ)
    assert (answer.deliveries, answer.objects, answer.kept) == ((), (), None)
