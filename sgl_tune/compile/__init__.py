"""Compile what a start would compile, before the start."""
