"""`python -m parcelpost` is `parcelpost`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from parcelpost.cli.main import main as run  # noqa: PLC0415 - the point: what it loads may be interrupted
    except KeyboardInterrupt:  # loading takes a moment, in which people change their minds
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
