"""The platforms that come with the package, one module each."""
