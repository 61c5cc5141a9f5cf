"""Names are safe on every store; nothing that is a secret gets into a text."""

import re

import pytest
from delivery_tools import make_evidence
from hypothesis import given
from hypothesis import strategies as st

from hangdrill.delivery.names import Address, safe
from hangdrill.delivery.news import make_news
from hangdrill.delivery.orders import Line
from hangdrill.delivery.record import starting_record
from hangdrill.delivery.secrets import Redactor, secret_in, webhook_shown

ADDRESS = Address(job="delivery/to-s3", run="hd-1", host="node 7", started_ns=1_795_996_546_123_456_789)


def test_a_name_carries_job_time_run_host_rank_and_attempt():
    name = ADDRESS.name_of("rank_3.a0.dump.pickle")
    assert name == "delivery-to-s3/20261129T235546Z-hd-1/node-7/rank_3.a0.dump.pickle"


@given(st.text())
def test_a_part_is_safe_whatever_it_comes_from(text):
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", safe(text))


@pytest.mark.parametrize("text", ["", ".", "..", "/", "../..", "\0", "-"])
def test_a_part_is_never_empty_and_never_climbs(text):
    assert safe(text) == "none"


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/prefix", "/mnt/dumps", "file:///mnt/dumps", "gs://bucket", "sftp://me@host/x",
        "abfs://container@account.dfs.core.windows.net/x", "s3://bucket/x?versionId=3",
        "simplecache::s3://bucket/x", "webhdfs://host:9870/x@y", "sftp://me@host:22/x",
    ],
)  # fmt: skip
def test_a_url_without_a_secret_has_none(url):
    assert secret_in(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:hunter22@host/x", "s3://KEY:hunter22@bucket/x", "https://host/x?sig=hunter22",
        "https://host/x?X-Amz-Signature=hunter22", "https://host/x?a=b&access_key=hunter22",
        "simplecache::s3://KEY:hunter22@bucket/x", "sftp://me:hunter22[@host/x", "s3://KEY:hun/hunter22@bucket/x",
        "ftp://me:p@hunter22@host/x", "filecache::ftp://host/x?token=hunter22",
    ],
)  # fmt: skip
def test_a_secret_in_a_url_is_found_and_not_repeated(url):
    assert secret_in(url)
    assert "hunter22" not in secret_in(url)
    assert "hunter22" not in Redactor({})(f"cannot open {url}: refused")


def test_values_of_secret_variables_are_masked_and_words_are_not():
    environ = {"AWS_SECRET_ACCESS_KEY": "abcdef123", "API_TOKEN": "abc", "HOME": "/home/me", "MY_PASSWORD": "abcdef"}
    assert Redactor(environ)("abcdef123 abcdef abc /home/me") == "*** *** abc /home/me"


def test_a_further_secret_can_be_named():
    assert Redactor({}, "https://hooks/T0/B0")("POST https://hooks/T0/B0 failed") == "POST *** failed"


@pytest.mark.parametrize(
    ("webhook", "shown"),
    [
        ("https://hooks.example.com/services/T0/B0/xyz", "https://hooks.example.com/***"),
        ("http://me:pw@10.0.0.1:8080/x?token=abc", "http://10.0.0.1:8080/***"),
        ("$CHAT_WEBHOOK", "$CHAT_WEBHOOK"),
        ("nonsense", "a webhook"),
        ("http://[bad/x", "a webhook"),
    ],
)
def test_of_a_webhook_only_the_host_is_shown(webhook, shown):
    assert webhook_shown(webhook) == shown


def test_what_is_no_secret_stays_readable():
    text = "cannot open s3://bucket/x: no answer from https://store:9000/a for me@example.com, see http://host:80/b@c"
    assert Redactor({})(text) == text


def test_news_of_a_delivery_of_nothing_are_not_complete(tmp_path):
    evidence = tmp_path / "evidence"
    make_evidence(evidence)
    record = starting_record(evidence, str(tmp_path / "there"), job="train")
    news = make_news(Line(word="incident"), "none", evidence=evidence, job="train", run="r", record=record)
    assert (news.delivered_to, news.complete) == (record.prefix, False)
