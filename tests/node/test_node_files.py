"""The files by which controller and nodes talk, and what the controller makes of them. No job, no namespaces."""

import msgspec
import pytest

from hangdrill.drill.layout import RunLayout
from hangdrill.drill.node_files import ControllerOrders, read_in_place, write_in_place
from hangdrill.drill.nodes import BEAT_S, LOST_AFTER_S, Nodes, prepare_nodes
from hangdrill.drill.nodes_road import merge_manifests
from hangdrill.drill.plan import plan_drill
from hangdrill.drill.scenario_file import find_all
from hangdrill.model.errors import UsageError
from hangdrill.model.run import Artifact, ArtifactKind, Leftover, Manifest, NodeStatus, PullReason, RankPull, RankState
from hangdrill.node.joining import claim

RANKS_OF = {0: (0, 1), 1: (2, 3)}


@pytest.fixture
def layout(tmp_path):
    for name in ("control", "evidence"):
        (tmp_path / name).mkdir()
    layout = RunLayout(tmp_path)
    prepare_nodes(layout, 2)
    return layout


@pytest.fixture
def nodes(layout):
    scenario = find_all(["hosts/hold"])[0].scenario
    plan = plan_drill(scenario, name="x", run_dir=layout.root, python="python3", environ={}, run_id="hd-1")
    return Nodes(plan, layout)


def say(layout, node, beat, **changes):
    write_in_place(layout.node_status(node), NodeStatus(node=node, host=f"host-{node}", beat=beat, **changes))


def listen(nodes, times=1):
    for _ in range(times):
        nodes._listen()


SILENT = int(LOST_AFTER_S / BEAT_S) + 1


def test_file_written_in_place_keeps_its_inode_and_shrinks(tmp_path):
    path = tmp_path / "orders"
    write_in_place(path, ControllerOrders(beat=1, endpoint="a-long-name-of-a-host:29400"))
    inode = path.stat().st_ino
    write_in_place(path, ControllerOrders(beat=2))
    assert path.stat().st_ino == inode
    assert read_in_place(path, ControllerOrders) == ControllerOrders(beat=2)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("torn", [b"", b'{"beat": 1', b'{"beat": 3}\n" }'])
def test_file_that_is_being_written_reads_as_nothing(tmp_path, torn):
    path = tmp_path / "orders"
    path.write_bytes(torn)
    assert read_in_place(path, ControllerOrders) is None


def test_node_is_missing_until_it_has_spoken(layout, nodes):
    listen(nodes)
    assert nodes.missing() == (0, 1)
    say(layout, 1, 1)
    listen(nodes)
    assert nodes.missing() == (0,)


def test_node_whose_beat_stands_still_is_lost_and_one_that_beats_is_not(layout, nodes):
    for beat in range(SILENT):
        say(layout, 0, beat)
        say(layout, 1, 1)
        listen(nodes)
    assert nodes.lost() == (1,)
    say(layout, 1, 2)
    listen(nodes)
    assert nodes.lost() == ()


def test_node_that_finished_is_over_and_never_lost(layout, nodes):
    say(layout, 0, 1, state="finished", torchrun=0)
    say(layout, 1, 1)
    listen(nodes, SILENT)
    assert nodes.lost() == (1,)
    assert nodes.all_over()
    assert nodes.job_over()


def test_job_is_not_over_while_one_torchrun_runs(layout, nodes):
    say(layout, 0, 1, torchrun=1)
    say(layout, 1, 1)
    listen(nodes)
    assert not nodes.job_over()
    say(layout, 1, 2, torchrun=0)
    listen(nodes)
    assert nodes.job_over()
    assert nodes.exit_code() == 1


def test_torchrun_that_left_living_ranks_is_trouble_and_one_that_took_them_along_is_not(layout, nodes):
    say(layout, 0, 1)
    say(layout, 1, 1, torchrun=-9, state="running", ranks=(2, 3), living=(2, 3))
    listen(nodes)
    assert nodes.trouble() == "torchrun on host-1 ended with -9, and its ranks 2, 3 live on"
    say(layout, 1, 2, torchrun=1, state="running", ranks=(2, 3), living=())
    listen(nodes)
    assert nodes.trouble() == ""


def test_lost_host_is_trouble(layout, nodes):
    for node in (0, 1):
        say(layout, node, 1)
    listen(nodes, SILENT)
    assert nodes.trouble().startswith("host-0 has not been heard of for ")


def test_question_for_all_reaches_every_node_once(layout, nodes):
    layout.collect_now.touch()
    nodes._pass_on_questions()
    nodes._pass_on_questions()
    orders = read_in_place(layout.controller_beat, ControllerOrders)
    assert orders.asked == {"0": 1, "1": 1}


def test_endpoint_of_node_0_is_passed_on(layout, nodes):
    say(layout, 0, 1, endpoint="10.0.0.1:29400")
    listen(nodes)
    nodes.let_start()
    orders = read_in_place(layout.controller_beat, ControllerOrders)
    assert (orders.start, orders.endpoint) == (True, "10.0.0.1:29400")


def test_what_a_node_left_is_named_with_its_host(layout, nodes):
    say(layout, 1, 1, leftovers=(Leftover(what="process", name="python (7)"),))
    listen(nodes)
    assert nodes.leftovers() == (Leftover(what="process", name="python (7) on host-1"),)


def test_copy_of_a_lost_nodes_own_dump_is_gone_with_it(layout, nodes):
    copy = layout.node_native(1) / "fr_2"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"x")
    say(layout, 1, 1)
    listen(nodes)
    assert nodes.copy_of("/var/tmp/own/fr_2") == copy
    listen(nodes, SILENT)
    assert nodes.copy_of("/var/tmp/own/fr_2") is None


def test_file_that_only_one_host_sees_is_in_its_own_file_system(layout, nodes):
    for node, names in ((0, ("fr_0", "fr_2")), (1, ("fr_2", "fr_3"))):
        for name in names:
            copy = layout.node_native(node) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(b"x")
    say(layout, 1, 1)
    listen(nodes)
    assert nodes.place_of("/var/tmp/own/fr_3") == "the own file system of host-1"
    assert nodes.place_of("/scratch/fr_2") == ""
    assert nodes.place_of("/scratch/fr_1") == ""


def pull(rank, **changes):
    return RankPull(rank=rank, state=RankState.RUNNING, **changes)


def artifact(rank, at_ns):
    return Artifact(
        rank=rank, kind=ArtifactKind.DUMP, road="handler", path=f"rank_{rank}.a0.dump.pickle", bytes=1, sha256="0",
        pulled_ns=at_ns, reason=PullReason.STALL,
    )  # fmt: skip


def manifest(*ranks, **changes):
    found = {"ranks": tuple(map(pull, ranks)), "artifacts": tuple(artifact(rank, rank) for rank in ranks), **changes}
    return Manifest(run_id="hd-1", **found)


def merged(found, *, over=frozenset(), lost=None):
    return merge_manifests(found, run_id="hd-1", world_size=4, ranks_of=RANKS_OF, over=over, lost=lost or {})


def test_merged_manifest_has_every_rank_and_paths_below_its_node():
    both = merged({0: manifest(0, 1, complete=True), 1: manifest(2, 3, complete=True)})
    assert both.complete
    assert [one.rank for one in both.ranks] == [0, 1, 2, 3]
    assert [one.path for one in both.artifacts] == [f"node{rank // 2}/rank_{rank}.a0.dump.pickle" for rank in range(4)]


def test_merged_manifest_is_not_complete_while_one_collector_works():
    assert not merged({0: manifest(0, 1, complete=True), 1: manifest(2, 3)}).complete
    assert not merged({0: manifest(0, 1, complete=True)}).complete


def test_lost_node_completes_the_manifest_and_its_ranks_say_why():
    why = "their host host-1 has not been heard of for 15 s"
    both = merged({0: manifest(0, 1, complete=True), 1: manifest(2)}, over=frozenset({1}), lost={1: why})
    assert both.complete
    assert [(one.rank, one.notes) for one in both.ranks] == [(0, ()), (1, ()), (2, (why,)), (3, (why,))]
    assert len(both.artifacts) == 3  # what was collected before stays


def test_rank_that_its_node_never_saw_says_so():
    both = merged({0: manifest(0, complete=True), 1: manifest(2, 3, complete=True)})
    assert [one.notes for one in both.ranks if one.rank == 1] == [("never seen on node 0",)]


def test_notice_of_a_hang_goes_before_that_of_a_question():
    asked = manifest(0, 1, noticed_ns=1, notice="the controller asked")
    found = manifest(2, 3, noticed_ns=2, notice="all_reduce #4 pending")
    assert merged({0: asked, 1: found}).notice == "all_reduce #4 pending"
    assert merged({0: asked}).notice == "the controller asked"


def test_orders_of_another_version_are_nothing(tmp_path):
    path = tmp_path / "orders"
    path.write_bytes(msgspec.json.encode({"schema": "hangdrill.orders/2", "beat": 1}))
    assert read_in_place(path, ControllerOrders) is None


def test_a_number_is_served_once(layout):
    claim(layout, 1)
    claim(layout, 0)
    with pytest.raises(UsageError, match="node 1 is served already"):
        claim(layout, 1)
