"""Preflight of a scenario in a container: a volume outlives it, its own layer does not, and neither is "missing"."""

import sys

import msgspec
import pytest

from hangdrill.model.scenario import Scenario
from hangdrill.preflight.destination import destination_findings
from hangdrill.preflight.gather import gather
from hangdrill.preflight.surroundings import Machine


@pytest.fixture
def findings(monkeypatch, tmp_path):
    """The names of what is found about the destination, on a host that is no container itself."""
    gathering = sys.modules[gather.__module__]  # the package names its function like the module
    monkeypatch.setattr(gathering, "ask_torch", lambda *_, **__: (None, "not asked"))
    monkeypatch.setattr(gathering, "look_at_machine", lambda _: Machine())

    def of(dump_to, launcher="bwrap", volumes=()):
        job = {"launcher": launcher, "workload": "all-reduce", "volumes": list(volumes)}
        table = {"title": "t", "job": job, "recorder": {"dump_to": dump_to, "trigger": "native"}}
        facts = gather(
            python=sys.executable, environ={}, cwd=tmp_path, umask=0o077, scenario=msgspec.convert(table, Scenario)
        )
        found = {finding.id for finding in destination_findings(facts)}
        return found - {"dump-on-tmpfs"}, facts.place  # where this test happens to run

    return of


def test_own_layer_goes_with_the_container(findings):
    found, place = findings("/dumps")
    assert found == {"dump-on-container-layer"}
    assert place.directory == "/dumps"


def test_named_volume_is_made_by_hangdrill(findings, tmp_path):
    found, place = findings("/mnt/dumps", volumes=["dumps:/mnt/dumps"])
    assert "dump-directory-missing" not in found
    assert (place.chosen_by, place.directory) == ("job.volumes", str(tmp_path / "hangdrill-runs/dumps"))


def test_volume_of_this_host_is_looked_at_where_it_is(findings, tmp_path):
    found, place = findings("/mnt/dumps/a", volumes=[f"{tmp_path}:/mnt/dumps"])
    assert "dump-directory-missing" not in found
    assert place.directory == str(tmp_path / "a")


def test_read_only_volume_is_no_place_for_dumps(findings):
    assert "dump-directory-unwritable" in findings("/mnt/dumps", volumes=["dumps:/mnt/dumps:ro"])[0]


def test_place_beside_a_volume_is_the_own_layer(findings):
    assert findings("/mnt/dumps2", volumes=["dumps:/mnt/dumps"])[0] == {"dump-on-container-layer"}


def test_same_directory_without_a_container_is_missing(findings):
    assert "dump-directory-missing" in findings("/no/such/dumps", launcher="torchrun")[0]


def test_a_job_in_an_image_is_not_judged_by_this_hosts_torch_and_variables(monkeypatch, tmp_path):
    gathering = sys.modules[gather.__module__]
    monkeypatch.setattr(gathering, "ask_torch", lambda *_, **__: pytest.fail("this host's torch was asked"))
    monkeypatch.setattr(gathering, "look_at_machine", lambda _: Machine())
    job = {"launcher": "container", "workload": "all-reduce", "container": {"image": "train:1"}, "env": {"A": "1"}}
    scenario = msgspec.convert({"title": "t", "job": job}, Scenario)
    facts = gather(
        python=sys.executable, environ={"TORCH_FR_BUFFER_SIZE": "0"}, cwd=tmp_path, umask=0o077, scenario=scenario
    )
    assert facts.torch is None
    assert "in the image train:1" in facts.torch_problem
    assert (facts.environ["A"], facts.environ["TORCH_FR_BUFFER_SIZE"]) == ("1", "2000")
