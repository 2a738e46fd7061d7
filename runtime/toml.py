"""Python's reader of TOML, which is in the standard library since 3.11."""

import sys

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib  # noqa: F401
