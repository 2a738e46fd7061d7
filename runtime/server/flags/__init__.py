"""Each release's own command line: `flags_of(release)` is the data, `parse` reads by it."""

from runtime.server.flags.grammar import Asked, Refused, parse
from runtime.server.flags.table import REQUIRED, CommandLine, Flag, flags_of

__all__ = ["REQUIRED", "Asked", "CommandLine", "Flag", "Refused", "flags_of", "parse"]
