"""The lines of the checklist that the two fingerprints answer: build, wheel, extensions, driver, topology."""

from collections.abc import Iterator

from hangdrill.certify.stacks import Stack
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.fingerprint import Extension, Fingerprint
from hangdrill.model.receipt import Item, Line
from hangdrill.model.verdict import Verdict

__all__ = ["stack_lines"]

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


def stack_lines(plan: CertifyPlan, baseline: Stack, candidate: Stack) -> tuple[Line, ...]:
    """One line a claim, in the order of the items."""
    sides = (baseline, candidate)
    return (
        *(_build(stack) for stack in sides),
        *(_wheel(stack) for stack in sides),
        _extensions(candidate),
        _driver(plan, baseline, candidate),
        _topology(baseline, candidate),
    )


def _build(stack: Stack) -> Line:
    claim = f"the {stack.name}'s torch imports, and says of which commit it was built"
    found = stack.fingerprint
    line = f"stack/{stack.name}/build"
    if stack.missing or found is None:
        return _line((line, Item.BUILD), UNKNOWN, claim, stack.missing, stack.next_step)
    detail = f"torch {found.torch}, commit {found.torch_git or 'not known'}, Python {found.python}"
    if not found.torch_git:
        return _line((line, Item.BUILD), UNKNOWN, claim, detail, "use a torch that says torch.version.git_version")
    return _line((line, Item.BUILD), PASS, claim, detail)


def _wheel(stack: Stack) -> Line:
    claim = f"the {stack.name}'s torch is what its wheel installed"
    found = stack.fingerprint
    line = f"stack/{stack.name}/wheel"
    if found is None or not found.torch:
        return _line((line, Item.WHEEL), UNKNOWN, claim, stack.missing, stack.next_step)
    if not found.wheel:
        why = "torch was not installed from a wheel, so nothing says what it should be"
        return _line((line, Item.WHEEL), UNKNOWN, claim, why, "build a wheel of it, and install that")
    if found.changed_files:
        detail = f"{found.wheel}; changed since: {', '.join(found.changed_files)}"
        hint = f"install it again, or build a wheel with the change: {stack.python} -m pip install --force-reinstall"
        if any(file.endswith("(added)") for file in found.changed_files):
            hint += "; remove what was added by hand"
        return _line((line, Item.WHEEL), FAIL, claim, detail, hint)
    return _line((line, Item.WHEEL), PASS, claim, f"{found.wheel}, {_build_text(found)}")


def _build_text(found: Fingerprint) -> str:
    return f"built for {found.build}" + (f" {found.cuda or found.hip}" if found.cuda or found.hip else "")


def _extensions(stack: Stack) -> Line:
    claim = "every installed extension was built with the candidate's torch, or with its stable ABI, and loads"
    found = stack.fingerprint
    line = "stack/candidate/extensions"
    if found is None or not found.imports_torch:
        return _line((line, Item.BUILD), UNKNOWN, claim, stack.missing, stack.next_step)
    troubles = [text for one in found.extensions if (text := _trouble(one, found.torch))]
    if troubles:
        hint = f"build or install them for torch {found.torch}, or remove them if no job needs them"
        return _line((line, Item.BUILD), UNKNOWN, claim, "; ".join(troubles), hint)
    names = ", ".join(f"{one.name} {one.version}" for one in found.extensions)
    return _line((line, Item.BUILD), PASS, claim, names or "none is installed")


def _trouble(extension: Extension, torch: str) -> str:
    """Why it cannot be relied on; empty when it can."""
    name = f"{extension.name} {extension.version}"
    if extension.loads is False:
        return f"{name} does not load: {extension.error}"
    if extension.loads is None:
        return f"{name} was not tried"
    if extension.stable_abi or not extension.built_with:
        return ""
    mine, built = torch.partition("+")[0].split("."), extension.built_with.split(".")
    return "" if mine[:2] == built[:2] else f"{name} was built with torch {extension.built_with}, this is {torch}"


def _driver(plan: CertifyPlan, baseline: Stack, candidate: Stack) -> Line:
    claim = "the driver and the NCCL or RCCL that both stacks load are known"
    sides = [(stack.name, stack.fingerprint) for stack in (baseline, candidate)]
    known = [(name, found) for name, found in sides if found is not None]
    texts = [f"{name}: driver {found.driver or 'none'}, NCCL/RCCL {found.nccl or 'none'}" for name, found in known]
    detail = "; ".join(texts)
    if len(known) < len(sides):
        missing = next(stack for stack in (baseline, candidate) if stack.fingerprint is None)
        return _line(("stack/driver", Item.DRIVER), UNKNOWN, claim, missing.missing, missing.next_step)
    if _on_cpu(plan.workload.backend):
        return _line(("stack/driver", Item.DRIVER), PASS, claim, f"{detail}; {plan.workload.backend} uses neither")
    if all(found.driver and found.nccl for _, found in known):
        return _line(("stack/driver", Item.DRIVER), PASS, claim, detail)
    hint = "certify on a host with the GPUs and their driver"
    return _line(("stack/driver", Item.DRIVER), UNKNOWN, claim, detail, hint)


def _on_cpu(backend: str) -> bool:
    return not any(word in backend for word in ("nccl", "cuda", "xccl", "rccl"))


def _topology(baseline: Stack, candidate: Stack) -> Line:
    claim = "both stacks were looked at on the same GPUs, links and network"
    left, right = baseline.fingerprint, candidate.fingerprint
    if left is None or right is None:
        missing = baseline if left is None else candidate
        return _line(("stack/topology", Item.TOPOLOGY), UNKNOWN, claim, missing.missing, missing.next_step)
    unlike = [name for name, one, other in _places(left, right) if one != other]
    if unlike:
        hint = "run both stacks on the same host, and give both containers the same devices"
        return _line(("stack/topology", Item.TOPOLOGY), FAIL, claim, f"not the same: {', '.join(unlike)}", hint)
    gpus = f"{len(right.gpus)} GPUs" if right.gpus else "no GPU"
    links = f", {sum(gpu.nvlinks or 0 for gpu in right.gpus)} NVLinks" if right.gpus else ""
    detail = f"host {right.host}: {gpus}{links}, {len(right.hcas)} HCAs, {len(right.network)} network interfaces"
    return _line(("stack/topology", Item.TOPOLOGY), PASS, claim, detail)


def _places(left: Fingerprint, right: Fingerprint) -> Iterator[tuple[str, object, object]]:
    yield "host", left.host, right.host
    yield "GPUs", [(gpu.name, gpu.uuid) for gpu in left.gpus], [(gpu.name, gpu.uuid) for gpu in right.gpus]
    yield "NVLink", [gpu.nvlinks for gpu in left.gpus], [gpu.nvlinks for gpu in right.gpus]
    yield "HCAs", [hca.name for hca in left.hcas], [hca.name for hca in right.hcas]
    yield "network", [one.name for one in left.network], [one.name for one in right.network]


def _line(where: tuple[str, Item], verdict: Verdict, claim: str, detail: str = "", mend: str = "") -> Line:
    return Line(id=where[0], item=where[1], verdict=verdict, claim=claim, detail=detail, mend=mend)
