"""`python -m mqstore`."""

from mqstore.cli.app import main

if __name__ == "__main__":
    main()
