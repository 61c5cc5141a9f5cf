"""The call sites of the jobs: stacks of 18 to 25 frames, innermost first, as torch 2.15 prints them under FSDP2."""

__all__ = ["STACKS", "Frame"]

Frame = dict[str, str | int]

TORCH = "/usr/local/lib/python3.12/site-packages/torch/"
FSDP = "distributed/fsdp/_fully_shard/"
TRAIN = "/app/train/"


def frame(place: str) -> Frame:
    """`name file:line` as a frame; files of torch are told by their folder."""
    name, _, where = place.partition(" ")
    file, _, line = where.partition(":")
    return {"name": name, "filename": (TRAIN if file.startswith("app_") else TORCH) + file, "line": int(line)}


def frames(*places: str) -> list[Frame]:
    """One frame a place; equal places share their frame, as torch shares those of equal code and instruction."""
    return [_KNOWN.setdefault(place, frame(place)) for place in places]


_KNOWN: dict[str, Frame] = {}

MODULE = (
    "inner nn/modules/module.py:1820",
    "_call_impl nn/modules/module.py:1893",
    "_wrapped_call_impl nn/modules/module.py:1787",
)
MAIN = (
    "step app_trainer.py:311",
    "wrapper profiler/profiler.py:88",
    "train_epoch app_trainer.py:247",
    "train app_trainer.py:190",
    "wrapper distributed/elastic/multiprocessing/errors/__init__.py:367",
    "main app_main.py:67",
    "<module> app_main.py:123",
)
MODEL = ("forward app_model.py:208", *MODULE, "forward app_loss.py:41")
GATHER = (
    "all_gather_single distributed/distributed_c10d.py:5421",
    "wrapper distributed/c10d_logger.py:83",
    f"__call__ {FSDP}_fsdp_collectives.py:115",
    f"foreach_all_gather {FSDP}_fsdp_collectives.py:390",
    "no_grad utils/_contextlib.py:158",
    f"unshard {FSDP}_fsdp_param_group.py:495",
    f"wrapper {FSDP}_fsdp_common.py:43",
)
REDUCE = (
    f"foreach_reduce {FSDP}_fsdp_collectives.py:681",
    "no_grad utils/_contextlib.py:158",
    f"post_backward {FSDP}_fsdp_param_group.py:808",
    "_fn _dynamo/eval_frame.py:1552",
    f"wrapper {FSDP}_fsdp_common.py:30",
    f"backward {FSDP}_fsdp_param_group.py:1397",
    "apply autograd/function.py:452",
)
BACKWARD = (
    "_engine_run_backward autograd/graph.py:841",
    "backward autograd/__init__.py:354",
    "backward _tensor.py:625",
    "backward_of_loss app_trainer.py:330",
    *MAIN,
)
ALL_REDUCE = ("all_reduce distributed/distributed_c10d.py:4174", "wrapper distributed/c10d_logger.py:83")
SEND = ("send distributed/distributed_c10d.py:3621", "wrapper distributed/c10d_logger.py:83")
RECV = ("recv distributed/distributed_c10d.py:3686", "wrapper distributed/c10d_logger.py:83")


def exchange(what: tuple[str, ...], line: int) -> list[Frame]:
    """A send or receive of a stage, some calls below the trainer."""
    schedule = (
        "_exchange app_stages.py:88",
        "_wait app_stages.py:131",
        f"run_micro_batch app_stages.py:{line}",
        *MODULE,
    )
    return frames(*what, *schedule, "run_schedule app_stages.py:260", *MODEL, *MAIN)


STACKS: dict[str, list[Frame]] = {
    "all_gather": frames(
        *GATHER,
        f"pre_forward {FSDP}_fsdp_param_group.py:649",
        f"_pre_forward {FSDP}_fsdp_state.py:343",
        "_fn _dynamo/eval_frame.py:1552",
        f"wrapper {FSDP}_fsdp_common.py:30",
        *MODULE,
        *MODEL[:4],
        *MAIN,
    ),
    "prefetch": frames(
        *GATHER,
        f"_prefetch_unshard {FSDP}_fsdp_param_group.py:1114",
        f"_backward_prefetch {FSDP}_fsdp_param_group.py:1096",
        f"pre_backward {FSDP}_fsdp_param_group.py:692",
        *BACKWARD,
    ),
    "reduce_scatter": frames(
        "reduce_scatter_single distributed/distributed_c10d.py:6164",
        "wrapper distributed/c10d_logger.py:83",
        f"__call__ {FSDP}_fsdp_collectives.py:180",
        *REDUCE,
        *BACKWARD,
    ),
    "replicate": frames(*ALL_REDUCE, *REDUCE, *BACKWARD),
    "bucket": frames(*ALL_REDUCE, "_reduce_bucket app_stages.py:402", *REDUCE[1:], *BACKWARD),
    "norm": frames(
        *ALL_REDUCE,
        "_norm app_clip.py:31",
        *MODULE,
        "clip app_clip.py:77",
        "no_grad utils/_contextlib.py:158",
        *BACKWARD[3:],
        *MODULE,
    ),
    "loss": frames(
        *ALL_REDUCE,
        "_mean app_loss.py:90",
        *MODULE,
        "log_loss app_loss.py:131",
        "no_grad utils/_contextlib.py:158",
        *BACKWARD[3:],
        *MODULE,
    ),
    "recv_forward": exchange(RECV, 171),
    "send_forward": exchange(SEND, 176),
    "recv_backward": exchange(RECV, 190),
    "send_backward": exchange(SEND, 197),
}
