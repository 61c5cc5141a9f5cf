"""S3 servers, each started once for all tests of a worker that need it."""

import contextlib

import pytest
from s3_labs import SERVERS, s3_lab, why_no_server


@pytest.fixture(scope="session")
def s3_servers(tmp_path_factory):
    """name -> the server; skips with the reason where there can be none."""
    with contextlib.ExitStack() as stack:
        started = {}

        def of(name):
            if why := why_no_server(name):
                pytest.skip(why)
            if name not in started:
                started[name] = stack.enter_context(s3_lab(name, tmp_path_factory.mktemp(name)))
            return started[name]

        yield of


@pytest.fixture(params=SERVERS)
def s3(request, s3_servers, monkeypatch):
    """One server, which this process's AWS settings name."""
    return _named(s3_servers(request.param), monkeypatch)


@pytest.fixture
def seaweed(s3_servers, monkeypatch):
    """The one that looks at keys."""
    return _named(s3_servers("seaweed"), monkeypatch)


def _named(server, monkeypatch):
    for name, value in server.settings().items():
        monkeypatch.setenv(name, value)
    return server
