"""The program: ``python -m tokencover``, and ``tokencover``."""

from tokencover.cli.process import INTERRUPTED, leave, print_interrupted


def start() -> None:
    """Run the command line, and end with its exit code."""
    try:
        from tokencover.cli.app import main  # takes long enough to press Ctrl-C
    except KeyboardInterrupt:
        print_interrupted()
        leave(INTERRUPTED)
    leave(main())


if __name__ == "__main__":
    start()
