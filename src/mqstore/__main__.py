"""`python -m mqstore`."""

from __future__ import annotations

from mqstore.cli.app import main

if __name__ == "__main__":
    main()
