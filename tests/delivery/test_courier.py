"""A delivery is bounded, idempotent and honest: what is called delivered was read back; the manifest comes last."""

import hashlib
import sys
import threading
import uuid

import msgspec
import pytest
from delivery_tools import (
    QUICK,
    RUN,
    STAMP,
    Wrapped,
    courier_for,
    drive,
    make_evidence,
    read_delivery,
    states,
    write_manifest,
)
from s3_labs import BUCKET

from hangdrill.delivery import deliver
from hangdrill.delivery.opening import open_store
from hangdrill.delivery.record import RECORD, locked
from hangdrill.model.delivery import DeliveryState, WriteOnce
from hangdrill.model.errors import MachineError, UsageError

DELIVERED, FAILED, PENDING = DeliveryState.DELIVERED, DeliveryState.FAILED, DeliveryState.PENDING


@pytest.fixture
def evidence(tmp_path):
    directory = tmp_path / "evidence"
    make_evidence(directory)
    return directory


@pytest.fixture
def target(tmp_path):
    return tmp_path / "there"


def test_all_artifacts_and_then_the_manifest_are_delivered(evidence, target):
    store = Wrapped(open_store(str(target)))
    record = drive(courier_for(evidence, str(target), store=store))
    assert record.complete
    assert states(record) == {DELIVERED}
    assert record.write_once is WriteOnce.CONDITIONAL
    assert sorted(store.puts) == ["manifest.json", "rank_0.a0.dump.pickle", "rank_1.a0.dump.pickle"]
    assert store.puts[-1] == "manifest.json"
    assert read_delivery(evidence) == record
    there = target / "train" / f"{STAMP}-{RUN}" / "host0"
    assert record.prefix == str(there)
    for name in store.puts:
        assert (there / name).read_bytes() == (evidence / name).read_bytes()


def test_it_is_delivered_to_real_s3_and_read_by_another_client(s3, evidence):
    prefix = uuid.uuid4().hex
    record = drive(courier_for(evidence, f"s3://{BUCKET}/{prefix}"))
    assert record.complete, record
    listed = s3.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]
    assert {one["Key"].rpartition("/")[2] for one in listed} == {
        "manifest.json",
        "rank_0.a0.dump.pickle",
        "rank_1.a0.dump.pickle",
    }
    body = s3.client().get_object(Bucket=BUCKET, Key=record.artifacts[0].url.removeprefix(f"s3://{BUCKET}/"))["Body"]
    assert hashlib.sha256(body.read()).hexdigest() == record.artifacts[0].sha256


def test_doing_it_again_writes_nothing(evidence, target):
    drive(courier_for(evidence, str(target)))
    store = Wrapped(open_store(str(target)))
    assert drive(courier_for(evidence, str(target), store=store)).complete
    assert store.puts == []


def test_an_object_with_other_bytes_is_a_conflict_and_stays_as_it_is(evidence, target):
    record = drive(courier_for(evidence, str(target)))
    victim = next(one for one in record.artifacts if one.path.startswith("rank_1"))
    (target / victim.url.removeprefix(f"{target}/")).write_bytes(b"tampered")
    again = drive(courier_for(evidence, str(target)))
    found = next(one for one in again.artifacts if one.path == victim.path)
    assert (found.state, found.attempts) == (FAILED, 1)
    assert "another object is there already" in found.last_error
    assert "8 bytes" in found.last_error
    assert not again.complete
    assert (target / victim.url.removeprefix(f"{target}/")).read_bytes() == b"tampered"


def test_an_object_that_was_in_the_bucket_before_is_a_conflict_and_stays_as_it_is(s3, evidence):
    prefix = uuid.uuid4().hex
    key = f"{prefix}/train/{STAMP}-{RUN}/host0/rank_0.a0.dump.pickle"
    s3.client().put_object(Bucket=BUCKET, Key=key, Body=b"of somebody else")
    record = drive(courier_for(evidence, f"s3://{BUCKET}/{prefix}"))
    found = {one.path: one for one in record.artifacts}
    assert found["rank_0.a0.dump.pickle"].state is FAILED
    assert "another object is there already" in found["rank_0.a0.dump.pickle"].last_error
    assert found["rank_1.a0.dump.pickle"].state is DELIVERED
    assert "manifest.json" not in found
    assert s3.client().get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"of somebody else"


def test_a_second_run_of_the_same_job_lies_beside_the_first(tmp_path, target):
    for run in ("hd-1", "hd-2"):
        make_evidence(tmp_path / run, run=run, salt=run.encode())
        assert drive(courier_for(tmp_path / run, str(target))).complete
    assert sorted(path.name for path in (target / "train").iterdir()) == [f"{STAMP}-hd-1", f"{STAMP}-hd-2"]


def test_what_changed_in_the_spool_is_not_delivered_under_its_old_hash(evidence, target):
    (evidence / "rank_0.a0.dump.pickle").write_bytes(b"changed")
    (evidence / "rank_1.a0.dump.pickle").unlink()
    record = drive(courier_for(evidence, str(target)))
    assert [one.state for one in record.artifacts] == [FAILED, FAILED]
    assert "has changed in the evidence directory" in record.artifacts[0].last_error
    assert "gone from the evidence directory" in record.artifacts[1].last_error
    assert not list(target.rglob("*.pickle"))


def test_a_store_that_fails_sometimes_is_tried_again(evidence, target):
    class Shaky(Wrapped):
        def put_new(self, name, data):
            super().put_new(name, data)
            if self.puts.count(name.rpartition("/")[2]) < 2 and "rank_0" in name:
                (self.inner.root / name).unlink()
                raise ConnectionError("reset")

    record = drive(courier_for(evidence, str(target), store=Shaky(open_store(str(target)))))
    assert record.complete
    assert {one.path: one.attempts for one in record.artifacts}["rank_0.a0.dump.pickle"] == 2


def test_a_store_that_always_fails_is_given_up_after_so_many_tries(evidence, target):
    class Broken(Wrapped):
        def put_new(self, name, data):
            raise ConnectionError("no route to host")

    record = drive(courier_for(evidence, str(target), store=Broken(open_store(str(target)))))
    assert states(record) == {FAILED}
    assert {one.attempts for one in record.artifacts} == {QUICK.tries}
    assert record.artifacts[0].last_error == "ConnectionError: no route to host"


def test_a_store_that_writes_and_loses_is_not_believed(evidence, target):
    class Liar(Wrapped):
        def put_new(self, name, data):
            """Says yes, and keeps nothing."""

    record = drive(courier_for(evidence, str(target), store=Liar(open_store(str(target)))))
    assert states(record) == {FAILED}
    assert "not there when it is read back" in record.artifacts[0].last_error


def test_a_store_that_hangs_holds_nobody_and_its_late_answer_counts(evidence, target):
    let_go = threading.Event()

    class Hanging(Wrapped):
        def put_new(self, name, data):
            if "rank_0" in name:
                let_go.wait(60)
            super().put_new(name, data)

    limits = msgspec.structs.replace(QUICK, try_s=0.2, tries=2)
    courier = courier_for(evidence, str(target), store=Hanging(open_store(str(target))), limits=limits)
    record = drive(courier, manifest=False)
    found = {one.path: one for one in record.artifacts}
    assert found["rank_1.a0.dump.pickle"].state is DELIVERED
    assert found["rank_0.a0.dump.pickle"].state is FAILED
    assert "no answer within" in found["rank_0.a0.dump.pickle"].last_error
    let_go.set()
    courier.wait(20)
    courier.step()
    assert states(courier.record) == {DELIVERED}


def test_when_the_time_is_over_the_rest_stays_pending_in_the_spool(evidence, target):
    never = threading.Event()

    class Hanging(Wrapped):
        def put_new(self, name, data):
            never.wait(60)

    courier = courier_for(evidence, str(target), store=Hanging(open_store(str(target))))
    courier.take()
    courier.step()
    courier.give_up("the time was over")
    assert states(read_delivery(evidence)) == {PENDING}
    assert read_delivery(evidence).artifacts[0].last_error == "the time was over"
    never.set()
    assert drive(courier_for(evidence, str(target))).complete


@pytest.mark.parametrize(
    ("url", "words", "mend"),
    [
        ("nowhere://x/y", "no file system is known as nowhere://", "check the URL"),
        (
            "s3://no-such-bucket-here/x",
            "there is no bucket or directory no-such-bucket-here",
            "hangdrill makes no bucket",
        ),
    ],
)
def test_what_trying_again_cannot_mend_is_tried_once_and_said(seaweed, evidence, url, words, mend):
    record = drive(courier_for(evidence, url))
    assert states(record) == {FAILED}
    assert {one.attempts for one in record.artifacts} == {1}
    assert words in record.artifacts[0].last_error
    assert mend in record.artifacts[0].mend


def test_a_wrong_key_is_said_and_never_repeated_in_the_record(seaweed, evidence, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONGWRONG")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-wrong")
    environ = {"AWS_ACCESS_KEY_ID": "AKIAWRONGWRONG", "AWS_SECRET_ACCESS_KEY": "wrong-secret-wrong"}
    record = drive(courier_for(evidence, f"s3://{BUCKET}/x", environ=environ))
    assert states(record) == {FAILED}
    assert "the store refuses these credentials" in record.artifacts[0].last_error
    assert "AWS_ACCESS_KEY_ID" in record.artifacts[0].mend
    text = (evidence / RECORD).read_text()
    assert "AKIAWRONGWRONG" not in text
    assert "wrong-secret" not in text


def test_a_server_that_is_not_there_is_given_up(seaweed, evidence, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    record = drive(courier_for(evidence, f"s3://{BUCKET}/x"), limit_s=60)
    assert states(record) == {FAILED}
    assert {one.attempts for one in record.artifacts} == {QUICK.tries}
    assert record.artifacts[0].last_error


def test_missing_credentials_are_said(seaweed, evidence, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    record = drive(courier_for(evidence, f"s3://{BUCKET}/x", limits=msgspec.structs.replace(QUICK, try_s=20)))
    assert record.artifacts[0].last_error == "there are no credentials"


def test_a_missing_package_is_said_with_the_command_that_installs_it(evidence, monkeypatch):
    import fsspec

    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules[fsspec.register_implementation.__module__]._registry, "s3", raising=False)
    record = drive(courier_for(evidence, "s3://bucket/x"))
    assert record.artifacts[0].last_error == "the package for s3:// is missing: s3fs"
    assert "pip install 'hangdrill[s3]'" in record.artifacts[0].mend


def test_a_volume_that_is_not_mounted_is_no_directory_to_write_beneath(evidence, tmp_path):
    record = drive(courier_for(evidence, str(tmp_path / "mnt" / "dumps")))
    assert states(record) == {FAILED}
    assert "does not exist" in record.artifacts[0].last_error
    assert not (tmp_path / "mnt").exists()


def test_a_manifest_that_changed_after_it_was_delivered_goes_under_a_further_name(evidence, target):
    first = make_evidence(evidence)
    drive(courier_for(evidence, str(target)))
    write_manifest(evidence, msgspec.structs.replace(first, notice="and another hang"))
    record = drive(courier_for(evidence, str(target)))
    assert record.complete
    there = target / "train" / f"{STAMP}-{RUN}" / "host0"
    assert b"another hang" not in (there / "manifest.json").read_bytes()
    assert b"another hang" in (there / "manifest.2.json").read_bytes()
    assert drive(courier_for(evidence, str(target))).complete


def test_deliver_completes_what_a_crash_has_left(evidence, target):
    courier = courier_for(evidence, str(target))
    courier.take()
    courier.save()
    record = deliver(evidence, str(target), environ={})
    assert (record.complete, record.host) == (True, "host0")


def test_deliver_refuses_another_target_than_before(evidence, target, tmp_path):
    deliver(evidence, str(target), environ={})
    with pytest.raises(UsageError, match="is being delivered to"):
        deliver(evidence, str(tmp_path / "elsewhere"), environ={})


def test_deliver_needs_an_evidence_directory(tmp_path, target):
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        deliver(tmp_path, str(target), environ={})


def test_deliver_refuses_a_secret_in_the_url_without_repeating_it(evidence):
    with pytest.raises(UsageError, match="a password") as caught:
        deliver(evidence, "ftp://user:hunter22@host/x", environ={})
    assert "hunter22" not in str(caught.value)


def test_two_processes_do_not_deliver_from_one_directory(evidence, target, monkeypatch):
    monkeypatch.setattr("hangdrill.delivery.record._LOCK_WAIT_S", 0.05)
    with locked(evidence), pytest.raises(MachineError, match="another process"):
        deliver(evidence, str(target), environ={})


def test_without_its_manifest_a_delivery_is_not_complete(evidence, target):
    record = drive(courier_for(evidence, str(target)), manifest=False)
    assert {one.state for one in record.artifacts} == {DeliveryState.DELIVERED}
    assert not record.complete
