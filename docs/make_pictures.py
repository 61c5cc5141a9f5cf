"""Make docs/img/drill.svg, a real drill's result as the terminal shows it: `python docs/make_pictures.py RUN`."""

import argparse
import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from hangdrill.drill.judge import judge
from hangdrill.drill.store import load_run
from hangdrill.report.terminal import print_result

THEMES = {"drill.svg": SVG_EXPORT_THEME, "drill-light.svg": DEFAULT_TERMINAL_THEME}

WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""The picture shall load nothing from the network: a reader's own monospaced font serves."""


def main() -> None:
    """Judge the run once more and print its result into the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "img")
    parser.add_argument("--width", type=int, default=110)
    arguments = parser.parse_args()
    arguments.to.mkdir(exist_ok=True)
    result, run = judge(arguments.run_dir), load_run(arguments.run_dir)
    shown = Path("hangdrill-runs") / result.scenario
    for name, theme in THEMES.items():
        console = Console(record=True, width=arguments.width, file=io.StringIO(), force_terminal=True, highlight=False)
        print_result(console, result, shown, run)
        title = f"hangdrill run {result.scenario}"
        picture = WEB_FONT.sub("", console.export_svg(title=title, theme=theme))
        (arguments.to / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
