"""Updates the tables of the reference pages from the code: `make docs`, or `python -m docs.reference`."""

from __future__ import annotations

import sys

from docs.reference.pages import FOLDER, PAGES, rendered


def main() -> None:
    for name in PAGES:
        after = rendered(name)
        if after != (FOLDER / name).read_text(encoding="utf-8"):
            (FOLDER / name).write_text(after, encoding="utf-8")
            sys.stdout.write(f"docs/{name} updated\n")


if __name__ == "__main__":
    main()
