"""Which device a backend moves, what a fault that needs a GPU does without one, and who gets no hook at all."""

import pytest

pytestmark = pytest.mark.torchrun

torch = pytest.importorskip("torch")

from hangdrill.rank.accelerator import NoAccelerator, bind, device_of, need_cuda, synchronize  # noqa: E402 - torch first, or skip; so below
from hangdrill.rank.facts import Facts  # noqa: E402 - after the setting above
from hangdrill.rank.faults import Fault, Reached  # noqa: E402 - after the setting above
from hangdrill.rank.files import Flags  # noqa: E402 - after the setting above
from hangdrill.rank.groups import KnownGroup  # noqa: E402 - after the setting above
from hangdrill.rank.opnames import OpNames  # noqa: E402 - after the setting above
from hangdrill.rank.orders import FaultOrder, Identity, Orders  # noqa: E402 - after the setting above
from hangdrill.rank.places import OperationPlace  # noqa: E402 - after the setting above
from hangdrill.rank.record import Record  # noqa: E402 - after the setting above

WHO = Identity(rank=1, attempt=0, world_size=2, local_rank=1)


@pytest.mark.parametrize(
    ("backend", "device"),
    [
        ("gloo", "cpu"),
        ("nccl", "cuda:1"),
        ("nccl-lazy", "cuda:1"),
        ("nccl-legacy", "cuda:1"),
        ("cpu:gloo,cuda:nccl", "cuda:1"),
        ("cpu:gloo", "cpu"),
        ("xccl", "xpu:1"),
        ("nobody-knows-it", "cpu"),
    ],
)
def test_a_backend_moves_what_torch_registered_it_for(backend, device):
    assert str(device_of(backend, 1)) == device


def test_an_out_of_tree_backend_moves_what_it_registers_for():
    torch.distributed.Backend.register_backend("fancy", lambda *given: None, devices=["cuda"])
    assert str(device_of("fancy", 0)) == "cuda:0"


def test_the_cpu_needs_no_binding_and_no_waiting():
    bind(torch.device("cpu"))
    synchronize(torch.device("cpu"))


def a_fault(tmp_path, kind, ranks=(1,)):
    orders = Orders(run_id="x", control=tmp_path, sockets=tmp_path, fault=FaultOrder(kind=kind, ranks=ranks))
    return Fault(orders, WHO, Flags(tmp_path, 1, WHO.stem))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("kind", ["gpu-kernel", "oom"])
def test_a_fault_that_needs_a_gpu_is_not_confirmed_without_one(tmp_path, kind):
    fault = a_fault(tmp_path, kind)
    with pytest.raises(NoAccelerator):
        fault.happen(Reached())
    assert not fault.was_reported


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_running_out_of_memory_takes_nothing_from_the_neighbours(tmp_path):
    need_cuda()
    before = torch.cuda.mem_get_info()[0]
    fault = a_fault(tmp_path, "oom")
    with pytest.raises(torch.OutOfMemoryError):
        fault.happen(Reached())
    assert fault.was_reported
    assert torch.cuda.mem_get_info()[0] == before


@pytest.mark.parametrize(("ranks", "counts", "hooked"), [((0,), False, False), ((0,), True, True), ((1,), False, True)])
def test_without_counting_only_the_rank_with_the_fault_has_a_hook(tmp_path, ranks, counts, hooked):
    place = OperationPlace(
        a_fault(tmp_path, "hold", ranks),
        Record(tmp_path / "x.ops"),
        OpNames(),
        Facts(WHO, backend="gloo", placement="pre-hook"),
        lambda: None,
        counts=counts,
    )
    group = KnownGroup(slot=0, name="0", desc="default_pg", ranks=(0, 1), backend_class="", pg=lambda: None)
    assert (place.hooks(group)[0] is not None) is hooked
