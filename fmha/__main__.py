"""The command line: `python -m fmha`. See `python -m fmha --help`."""

import sys


def run() -> int:
    """Run the command line; Ctrl-C and a closed pipe end it without a traceback."""
    try:
        from fmha.cli import main  # here, so that Ctrl-C during the import is tidy too

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
