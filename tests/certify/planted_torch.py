"""A torch with something planted, as a changed package would have it: hangdrill is told nothing of it."""

from pathlib import Path

__all__ = ["plant_in_torch"]

HOOK = """
import importlib.abc, importlib.util, os, sys, time

class Planted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            plant(module)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Planted())
"""


def plant_in_torch(directory: Path, plant: str) -> dict[str, str]:
    """The variables of a Python whose torch it is. plant: source of `def plant(torch)`, called once torch is imported;
    it may use os, sys and time. directory: a new one is made in it."""
    home = directory / "planted"
    home.mkdir()
    (home / "sitecustomize.py").write_text(HOOK + plant)
    return {"PYTHONPATH": str(home)}
