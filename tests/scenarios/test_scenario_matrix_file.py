"""A matrix file stands for exactly its cells, with the layers applied in order, and refuses what it cannot mean."""

from pathlib import Path
from typing import Any

import pytest

from hangdrill.drill.scenario_file import NamedScenario, load_file
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import FaultKind

BASE = """
[matrix]
title = "{workload}: {kind} on rank {rank}"
workloads = ["ddp", "mesh-2d"]
kinds = ["hold", "kill", "none"]

[job]
nproc_per_node = 3
timeout_s = 4

[expect]
dumps = "all"
culprits = "injected"

[workload.ddp.fault]
before = { op = "all_reduce", nth = 4 }

[workload.mesh-2d]
job = { nproc_per_node = 4 }
fault = { before = { group = "mesh_tp", op = "all_reduce", nth = 3 } }

[kind.kill.expect]
dumps = "others"

[kind.none.expect]
dumps = "none"
"""


def cells(folder: Path, text: str = BASE) -> dict[str, NamedScenario]:
    file = folder / "scenarios/grid/matrix.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return {named.name: named for named in load_file(file)}


def test_every_cell_is_there_with_the_first_a_middle_and_the_last_rank(tmp_path: Path) -> None:
    expected = [f"grid/ddp-{kind}-r{rank}" for kind in ("hold", "kill") for rank in (0, 1, 2)] + ["grid/ddp-none"]
    expected += [f"grid/mesh-2d-{kind}-r{rank}" for kind in ("hold", "kill") for rank in (0, 2, 3)] + [
        "grid/mesh-2d-none"
    ]
    assert list(cells(tmp_path)) == expected


def test_words_stand_for_what_differs_by_cell(tmp_path: Path) -> None:
    found = cells(tmp_path)
    held, killed, healthy = (found[f"grid/ddp-{cell}"].scenario for cell in ("hold-r0", "kill-r2", "none"))
    assert (held.title, held.expect.expected_culprits, held.expect.dumps) == ("ddp: hold on rank 0", (0,), "all")
    assert (killed.expect.expected_culprits, killed.expect.dumps) == ((2,), (0, 1))
    assert (healthy.expect.expected_culprits, healthy.fault.kind, healthy.fault.before) == ((), FaultKind.NONE, None)


def test_a_later_layer_wins_key_by_key(tmp_path: Path) -> None:
    text = (
        BASE
        + '[[cell]]\nworkloads = ["mesh-2d"]\nranks = [3]\nfault = { before = { nth = 9 } }\njob = { timeout_s = 7 }\n'
    )
    found = cells(tmp_path, text)
    changed, other = found["grid/mesh-2d-hold-r3"].scenario, found["grid/mesh-2d-hold-r2"].scenario
    assert changed.fault.before is not None
    assert (changed.fault.before.nth, changed.fault.before.group, changed.job.timeout_s) == (9, "mesh_tp", 7)
    assert other.fault.before is not None
    assert (other.fault.before.nth, other.job.timeout_s) == (3, 4)


def test_a_place_takes_the_earlier_place_away(tmp_path: Path) -> None:
    found = cells(tmp_path, BASE + '[kind.hold.fault]\nat = "step:2"\n')["grid/ddp-hold-r1"].scenario
    assert (found.fault.at, found.fault.before) == ("step:2", None)


WRONG: dict[str, tuple[str, str, str]] = {
    "unknown key": (BASE.replace("kinds =", "kindz ="), "matrix.kindz", "`kinds`"),
    "unknown kind": (BASE.replace('"kill", ', '"kil", '), "matrix.kinds[1]", "`kill`"),
    "kind twice": (BASE.replace('"kill", ', '"hold", '), "matrix.kinds", "once"),
    "no workload": (BASE.replace('["ddp", "mesh-2d"]', "[]"), "matrix.workloads", "once"),
    "placeholder": (BASE.replace("{kind} on", "{what} on"), "matrix.title", "{kind}"),
    "axis set by hand": (BASE + "[kind.hold.fault]\nrank = 1\n", "kind.hold.fault.rank", "leave it out"),
    "table nobody uses": (BASE + "[kind.stop.expect]\ndumps = 'all'\n", "kind.stop", "matrix.kinds"),
    "wrong scenario": (BASE.replace("timeout_s = 4", "timeout_s = 0"), "[ddp-hold-r0]: job.timeout_s", "above 0"),
    "wrong key in a layer": (BASE + "[kind.hold.job]\nstep = 4\n", "[ddp-hold-r0]: job.step", "`steps`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named(tmp_path: Path, name: str) -> None:
    text, where, remedy = WRONG[name]
    with pytest.raises(UsageError) as caught:
        cells(tmp_path, text)
    assert where in str(caught.value)
    assert remedy in str(caught.value)


def test_a_plain_scenario_is_no_matrix(tmp_path: Path) -> None:
    found: dict[str, Any] = cells(tmp_path, 'title = "t"\n[job]\nworkload = "ddp"\n')
    assert list(found) == ["grid/matrix"]


def over_backends(extra: str = "") -> str:
    axes = 'backends = ["nccl", "rolled-back"]\nroads = ["native", "slow-poll"]\n'
    return (
        (
            BASE.replace('kinds = ["hold"', f'{axes}kinds = ["hold"').replace('["ddp", "mesh-2d"]', '["ddp"]')
            + '[backend.rolled-back.job]\nbackend = "nccl"\nenv = { TORCH_DIST_USE_NCCL2 = "0" }\n'
            + '[road.slow-poll.recorder]\ntrigger = "debug-server"\ndebug_server_interval_s = 60\n'
            + extra
        )
        .replace("[workload.mesh-2d]\njob = { nproc_per_node = 4 }\n", "")
        .replace('fault = { before = { group = "mesh_tp", op = "all_reduce", nth = 3 } }\n', "")
    )


def test_backends_and_roads_are_axes_with_labels(tmp_path: Path) -> None:
    found = cells(tmp_path, over_backends())
    assert len(found) == 2 * 2 * (2 * 3 + 1)
    plain = found["grid/nccl.native.ddp-hold-r1"].scenario
    rolled = found["grid/rolled-back.slow-poll.ddp-hold-r1"].scenario
    assert (plain.job.backend, plain.job.env, plain.recorder.trigger.value) == ("nccl", {}, "native")
    assert (rolled.job.backend, rolled.job.env) == ("nccl", {"TORCH_DIST_USE_NCCL2": "0"})
    assert (rolled.recorder.trigger.value, rolled.recorder.debug_server_interval_s) == ("debug-server", 60)


def test_cells_can_be_left_out(tmp_path: Path) -> None:
    out = '[[leave_out]]\nbackends = ["rolled-back"]\nkinds = ["kill", "none"]\n'
    found = cells(tmp_path, over_backends(out))
    assert len(found) == 2 * (2 * 3 + 1) + 2 * 3
    assert not any(name.startswith("grid/rolled-back") and "kill" in name for name in found)


def test_a_backend_whose_name_cannot_be_part_of_a_name_needs_a_label(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be part of a name"):
        cells(tmp_path, over_backends().replace('"nccl", "rolled', '"cpu:gloo,cuda:nccl", "rolled'))


def test_a_layer_of_a_backend_that_no_cell_has_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"backend\.other"):
        cells(tmp_path, over_backends("[backend.other.job]\ntimeout_s = 9\n"))
