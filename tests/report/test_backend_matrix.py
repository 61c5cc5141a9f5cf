"""The page of a matrix over backends and roads says who was named, whose dumps arrived, and what is not as known."""

from healthy_runs import held_run, lose_rank, mutate, scenario
from sample_results import named, passed_run, result_of, unknown_run

from hangdrill.model.run import Environment
from hangdrill.report.backend_matrix import backend_page, has_backends
from hangdrill.report.matrix import cells_of, is_matrix

RIGHT = result_of(passed_run())
CANNOT = result_of(unknown_run())
SURPRISING = result_of(lose_rank(held_run(), 3))


def page_of(*results):
    return backend_page(list(results)).splitlines()


def test_backend_and_road_are_read_from_the_name():
    [cell] = cells_of([named(RIGHT, "gpu/nccl-lazy.debug-server-60s.all-to-all-wrong-op-r1")])
    found = (cell.backend, cell.road, cell.workload, cell.kind, cell.rank)
    assert found == ("nccl-lazy", "debug-server-60s", "all-to-all", "wrong-op", 1)


def test_a_matrix_over_backends_is_no_plain_matrix_and_the_other_way_round():
    over = [named(RIGHT, f"gpu/{backend}.native.ddp-hold-r1") for backend in ("nccl", "mixed", "nccl-lazy")]
    plain = [named(RIGHT, f"faults/ddp-hold-r{rank}") for rank in (0, 1)]
    assert (has_backends(over), is_matrix(over)) == (True, False)
    assert (has_backends(plain), is_matrix(plain)) == (False, True)
    assert not has_backends([*over, *plain])
    assert not has_backends([])


def test_each_road_has_a_table_of_faults_and_backends():
    page = page_of(
        named(RIGHT, "gpu/nccl.native.all-reduce-hold-r1"),
        named(CANNOT, "gpu/nccl-lazy.native.all-reduce-hold-r1"),
        named(RIGHT, "gpu/nccl.collector.ddp-hold-r1"),
    )
    assert page.index("## `native`") < page.index("## `collector`")
    assert "| fault | nccl | nccl-lazy |" in page
    row = next(line for line in page if line.startswith("| hold |"))
    assert "right; 0, 1, 2, 3" in row
    assert "cannot tell" in row
    assert any(line.startswith("| ddp: hold |") for line in page)
    assert any(line.startswith("3 cells: 2 right, 1 cannot tell, 0 wrong; 0 with") for line in page)


def test_an_arrival_that_is_not_as_known_is_marked():
    page = "\n".join(page_of(named(SURPRISING, "gpu/nccl.collector.ddp-hold-r1")))
    assert "**!**" in page
    assert "1 with an arrival that is not as known" in page


def test_the_stack_it_was_measured_on_is_named():
    ran = Environment(torch="2.15.0+cu132", nccl_loaded="2.30.7", device_binding="cuda:0 (NVIDIA H200), derived")
    page = "\n".join(page_of(named(mutate(RIGHT, environment=ran), "gpu/nccl.native.ddp-hold-r1")))
    assert "Measured on torch 2.15.0+cu132, NCCL 2.30.7, NVIDIA H200." in page


def test_reasons_that_differ_in_the_operation_alone_stand_together():
    def joined(op):
        checks = tuple(
            mutate(check, detail=f"a hang; all ranks entered {op} of default_pg and none finished it")
            if check.name == "culprit"
            else check
            for check in CANNOT.checks
        )
        return mutate(CANNOT, checks=checks)

    page = page_of(
        named(joined("all_reduce #5"), "gpu/nccl.native.all-reduce-gpu-kernel-r1"),
        named(joined("all_gather #9"), "gpu/nccl.native.ddp-gpu-kernel-r1"),
    )
    assert [line for line in page if line.startswith("- cannot tell:")] == [
        "- cannot tell: a hang; all ranks entered the same operation and none finished it"
        " (nccl.native gpu-kernel, nccl.native ddp: gpu-kernel)"
    ]
    assert scenario().title
