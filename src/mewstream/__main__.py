"""``python -m mewstream``: the command line."""

from __future__ import annotations

from mewstream.cli.main import main

if __name__ == "__main__":
    main()
