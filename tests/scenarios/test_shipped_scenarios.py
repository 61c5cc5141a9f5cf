"""What is shipped: every scenario is valid, also by the JSON schema, and the sets are what the docs promise."""

import itertools
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from hangdrill.drill.scenario_checks import warnings
from hangdrill.drill.scenario_file import find_all, shipped_dir, tomllib
from hangdrill.drill.scenario_matrix import is_matrix
from hangdrill.model.scenario import HOST_FAULTS, FaultKind, WorkloadName
from hangdrill.model.schema import SCHEMAS, schema_of, schema_text
from hangdrill.schemas import read

FILES = sorted(shipped_dir().rglob("*.toml"))
SHORT_SENDS = (FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(shipped_dir()).as_posix())
def test_a_shipped_file_fits_its_json_schema(path: Path) -> None:
    data = tomllib.loads(path.read_text())
    jsonschema.validate(data, schema_of("scenario-matrix" if is_matrix(data) else "scenario"))


def test_the_json_schema_refuses_an_unknown_key() -> None:
    data = {"title": "t", "job": {"workload": "ddp", "nproc": 2}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema_of("scenario"))


def test_every_cell_of_the_matrix_is_a_scenario_by_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema_of("scenario"))
    for named in find_all(["faults"]):
        validator.validate(json.loads(msgspec.json.encode(named.scenario)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_file_is_what_the_model_says(name: str) -> None:
    assert read(name) == schema_text(name), "run `python -m hangdrill.schemas`"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_itself_and_names_its_contract(name: str) -> None:
    schema = json.loads(read(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:hangdrill.{name}:1"


def test_the_quick_set_has_eight_drills_or_more_with_both_negative_controls() -> None:
    quick = {named.name: named.scenario for named in find_all(["quick"])}
    assert len(quick) >= 8
    assert {FaultKind.NONE, FaultKind.SLOW} <= {scenario.fault.kind for scenario in quick.values()}
    assert all(scenario.job.timeout_s <= 5 for scenario in quick.values())


def test_make_drill_is_the_scenario_of_the_readme() -> None:
    scenario = find_all(["quick/ddp-hold"])[0].scenario
    assert (scenario.job.world_size, scenario.fault.targets, scenario.expect.dumps) == (4, (1,), "all")
    assert scenario.expect.expected_culprits == (1,)


NEED_A_GPU = (FaultKind.GPU_KERNEL, FaultKind.OOM)
NOT_IN_THE_MATRIX_OF_GLOO = (*NEED_A_GPU, FaultKind.STORE_DEATH, *HOST_FAULTS)


def test_the_matrix_is_every_workload_and_fault_at_the_first_a_middle_and_the_last_rank() -> None:
    found = {named.name: named.scenario for named in find_all(["faults"])}
    workloads = [word for word in WorkloadName if word is not WorkloadName.COALESCED]
    pairs = itertools.product(workloads, [kind for kind in FaultKind if kind not in NOT_IN_THE_MATRIX_OF_GLOO])
    for workload, kind in pairs:
        cells = [s for s in found.values() if s.job.workload is workload and s.fault.kind is kind]
        targets = {scenario.fault.targets for scenario in cells}
        world = cells[0].job.world_size
        assert targets == ({()} if kind is FaultKind.NONE else {(0,), (world // 2,), (world - 1,)})
    assert len(found) == 7 * 14 * 3 + 7


def test_the_truth_is_the_rank_that_was_injected_and_nobody_for_the_negative_controls() -> None:
    for named in find_all(["faults"]):
        fault, expect = named.scenario.fault, named.scenario.expect
        # gloo takes a send that is smaller than the receive's buffer: wrong data, and no hang.
        short_send = named.scenario.job.workload is WorkloadName.PIPELINE and fault.kind in SHORT_SENDS
        harmless = fault.kind in (FaultKind.NONE, FaultKind.SLOW) or short_send
        assert expect.expected_culprits == (() if harmless else fault.targets), named.name
        assert (expect.dumps == "none") is harmless, named.name


def test_only_the_drills_that_show_torch_alone_leave_the_collector_out() -> None:
    native = {named.name for named in find_all(["scenarios"]) if named.scenario.recorder.trigger.value != "collector"}
    containers = {"containers/volume", "containers/own-layer", "containers/read-only"}
    pods = {"kubernetes/volume", "kubernetes/empty-dir"}
    expected = {"delivery/native-gloo", "delivery/debug-server", *containers, *pods}
    assert {name for name in native if not name.startswith(("gpu/", "controls/", "hosts/", "slurm/"))} == expected


def test_a_dump_that_is_to_survive_in_the_containers_own_layer_is_warned_of() -> None:
    texts = {named.name: warnings(named.scenario) for named in find_all(["scenarios"])}
    assert any("is the container's own, and goes with it" in text for text in texts["containers/own-layer"])
    assert texts["containers/volume"] == ()
