"""Writes docs/modules.md: every module of the package with the first line of its docstring. Run by `make docs`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "mewstream"
LAYERS = {
    "protocol": "pure: no I/O, no asyncio",
    "io": "what several layers ask of the operating system and the event loop",
    "settings": "where programs find their settings",
    "journal": "the durable log",
    "audit": "judging the log, from the log alone",
    "gateway": "the server",
    "client": "the SDK",
    "sync": "the SDK without `async`, for notebooks and scripts",
    "pipeline": "tables of the journal, with Spark",
    "bench": "measuring gateways",
    "cli": "the command line",
}


def first_line(module: Path) -> str:
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def document() -> str:
    lines = [
        "# Modules",
        "",
        "Where to find what: every module with what its first line says. Written by `make docs`.",
    ]
    for layer, meaning in LAYERS.items():
        lines += ["", f"## {layer}", "", f"`src/mewstream/{layer}`: {meaning}.", "", "| module | |", "|---|---|"]
        for module in sorted((PACKAGE / layer).rglob("*.py")):
            if module.name != "__init__.py":
                name = module.relative_to(PACKAGE).as_posix()
                lines.append(f"| `{name}` | {first_line(module).replace('|', chr(92) + '|')} |")
    lines += ["", "## beside them", "", "| module | |", "|---|---|"]
    for module in sorted(PACKAGE.glob("*.py")):
        lines.append(f"| `{module.name}` | {first_line(module)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
