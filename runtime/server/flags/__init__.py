"""Each release's own command line: `flags_of(release)` is the data, `parse` reads by it."""

from runtime.server.flags.config_file import config_words
from runtime.server.flags.grammar import Parsed, Refused, parse
from runtime.server.flags.table import REQUIRED, CommandLine, Flag, flags_of

__all__ = ["REQUIRED", "CommandLine", "Flag", "Parsed", "Refused", "config_words", "flags_of", "parse"]
