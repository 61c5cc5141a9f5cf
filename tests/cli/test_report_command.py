"""`hangdrill report --matrix` writes the page of results that lie there; `run --resume` does not do them again."""

import msgspec
import pytest
from click.testing import CliRunner
from drill_results import drill_result

from hangdrill.cli import cli
from hangdrill.cli.run import _results_in
from hangdrill.drill.scenario_file import find_all
from hangdrill.model.errors import UsageError


def write(folder, name, **changes):
    directory = folder / name
    directory.mkdir(parents=True)
    made = msgspec.structs.replace(drill_result(name), **changes)
    (directory / "result.json").write_bytes(msgspec.json.encode(made))
    return made


def invoke(*arguments):
    return CliRunner().invoke(cli, ["report", "--matrix", *map(str, arguments)], catch_exceptions=True)


def test_a_matrix_over_backends_becomes_a_page_of_its_own(tmp_path):
    write(tmp_path, "gpu/nccl.native.ddp-hold-r1")
    page = tmp_path / "page.md"
    assert invoke(tmp_path, "--output", page).exit_code == 0
    assert page.read_text().startswith("# What each backend leaves of a hang, on GPUs")


def test_a_matrix_of_workloads_and_faults_is_printed_as_before(tmp_path):
    write(tmp_path, "faults/ddp-hold-r0")
    write(tmp_path, "faults/ddp-hold-r1")
    assert invoke(tmp_path).output.startswith("| fault | ddp |")


def test_a_drill_that_is_no_cell_is_named_and_not_dropped(tmp_path):
    write(tmp_path, "faults/ddp-hold-r0")
    assert "left out" not in invoke(tmp_path).output
    write(tmp_path, "delivery/native-gloo")
    output = invoke(tmp_path).output
    assert "1 cells: " in output
    assert "- left out, for a name that is no cell's: 1 drill: delivery/native-gloo (" in output


def test_without_any_cell_there_is_no_empty_table(tmp_path):
    write(tmp_path, "delivery/native-gloo")
    output = invoke(tmp_path).output
    assert output.startswith("0 cells")
    assert "left out" in output


def test_nothing_to_report_is_said(tmp_path):
    assert isinstance(invoke(tmp_path).exception, UsageError)


@pytest.mark.parametrize("cut", [False, True])
def test_resume_takes_a_result_that_is_there_and_clears_a_drill_that_was_cut_short(tmp_path, cut):
    items = find_all(["quick/ddp-hold", "quick/ddp-kill"])
    made = write(tmp_path, "quick/ddp-hold")
    if cut:
        (tmp_path / "quick/ddp-kill").mkdir()
        (tmp_path / "quick/ddp-kill/plan.json").write_text("{}")
    assert _results_in(tmp_path, items) == {"quick/ddp-hold": made}
    assert not (tmp_path / "quick/ddp-kill").exists()
