"""The table [nodes] is read whole or refused, each mistake with its key and what to write instead."""

from pathlib import Path

import pytest

from hangdrill.certify.nodes_plan import endpoint_of
from hangdrill.certify.plan import plan_of
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.errors import UsageError

TOP = 'title = "up"\ntopologies = ["multi-node"]\n'
SIDES = '[baseline]\npython = "/a/bin/python"\n[candidate]\npython = "/b/bin/python"\n'
NODES = '[nodes]\nnames = ["node-a", "node-b"]\nrun = ["ssh", "{node}", "{command}"]\nendpoint = "node-a:29400"\n'


def plan(text: str) -> CertifyPlan:
    return plan_of(text, path=Path("/plans/plan.toml"), environ={"HOME": "/home/kim"}).plan


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        plan(text)
    return f"{caught.value.where}: {caught.value.what} ({caught.value.next_step})"


def test_the_names_say_how_many_nodes_there_are():
    found = plan(TOP + SIDES + NODES)
    assert found.workload.nnodes == 2
    assert found.nodes is not None
    assert found.nodes.interface == ""


def test_a_command_that_starts_all_nodes_needs_their_number_alone():
    srun = '[workload]\nnnodes = 3\n[nodes]\nrun = ["srun", "--nodes=3"]\nendpoint = "node-a:29400"\n'
    assert plan(TOP + SIDES + srun).workload.nnodes == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('names = ["node-a", "node-b"]\n', "", "there is none"),
        ('"node-b"]', '"node-a"]', "stands there twice"),
        (', "node-b"', "", "two or more"),
        ('"node-b"', '"-oProxyCommand=x"', "is no name of a node"),
        ('["ssh", "{node}", "{command}"]', "[]", "there is no program"),
        ('"{node}", "{command}"', '"{node}", "{command}", "{command}"', "{command} stands there twice"),
        ("node-a:29400", "node-a:0", "no place to meet"),
        ("node-a:29400", "node-a", "no place to meet"),
        ('endpoint = "node-a:29400"\n', "", "endpoint"),
        ("[nodes]\n", "[workload]\nnnodes = 3\n[nodes]\n", "nodes.names has 2"),
    ],
)
def test_a_mistake_is_named_and_mended(old: str, new: str, said: str):
    assert said in refused(TOP + SIDES + NODES.replace(old, new))


def test_topology_and_nodes_belong_together():
    assert "needs to know the nodes" in refused(TOP + SIDES)
    assert "topology multi-node" in refused('title = "up"\n' + SIDES + NODES)
    assert "topology multi-node" in refused('title = "up"\n' + SIDES + "[workload]\nnnodes = 2\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("node-a:29400", ("node-a", 29400)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[fd00::1]:29400", ("fd00::1", 29400)),
        ("node-a:65536", None),
        (":29400", None),
        ("http://a:1", None),
        ("a b:1", None),
    ],
)
def test_a_place_to_meet_is_a_host_and_a_port(text: str, found: tuple[str, int] | None):
    assert endpoint_of(text) == found
