"""Write the JSON Schema of every command to docs/schemas/. Run: python tools/schemas.py."""

from __future__ import annotations

import json
from pathlib import Path

from capplan.report.schemas import RESULTS, command_schema

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


def schema_text(command: str) -> str:
    """The text of one committed schema."""
    return json.dumps(command_schema(command), indent=2, sort_keys=True) + "\n"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for command in RESULTS:
        (FOLDER / f"{command.replace(' ', '-')}.json").write_text(schema_text(command), encoding="utf-8")


if __name__ == "__main__":
    main()
