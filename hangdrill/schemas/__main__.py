"""Write every schema file anew: `python -m hangdrill.schemas`, after a change of the model."""

from pathlib import Path

from hangdrill.model.schema import SCHEMAS, schema_text
from hangdrill.schemas import file_name


def main() -> None:
    """Write the files beside this module."""
    for name in SCHEMAS:
        (Path(__file__).parent / file_name(name)).write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
