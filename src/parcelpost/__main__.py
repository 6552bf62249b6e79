"""`python -m parcelpost` is `parcelpost`."""

from parcelpost.cli.main import main

if __name__ == "__main__":
    main()
