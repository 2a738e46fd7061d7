"""One reader per store. Each knows how its library lays out entries, and when the library takes one."""
