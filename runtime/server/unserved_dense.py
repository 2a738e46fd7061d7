"""... of dense families, whose layers add up what all ranks answer."""

from __future__ import annotations

from runtime.server.unserved_row import DRAFTS, Row

DENSE = {
    "starcoder2": (DRAFTS,),
    # srt/models/nemotron_nas.py, which does not say where a stage begins
    "nemotron-nas": (
        Row(lambda _, s: s.pp_size > 1, "--pp: each stage keeps a place for the tokens of all layers"),
        DRAFTS,
    ),
}
