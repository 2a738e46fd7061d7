"""A model that nobody has heard of, in a copy of SGLang: another class, another way through a layer.

    python benchmarks/real_starts/unheard.py PACKAGES

PACKAGES is the site-packages of a Python with SGLang; one more file comes beside SGLang's own models, made
of the one that holds Mixtral. `starts.toml` has its starts as the round `unheard`.
"""

from __future__ import annotations

import sys
from pathlib import Path

SHARED = """\
        self.everyone = LlamaMLP(
            config.hidden_size, 5 * config.hidden_size // 2, "silu", prefix=add_prefix("everyone", prefix)
        )
        self.mixed = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=True)
"""
THROUGH = """\
        chosen = self.block_sparse_moe(hidden_states).float()
        spread = chosen.square().mean(-1, keepdim=True).rsqrt()
        both = torch.cat([(chosen * spread).to(hidden_states.dtype), self.everyone(hidden_states)], -1)
        hidden_states = self.mixed(both)
"""
IMPORT = "import add_prefix, make_layers\n"
NORM = "        self.input_layernorm = "
RETURN = "        return hidden_states, residual\n"
EXPERTS = "        hidden_states = self.block_sparse_moe(hidden_states)\n" + RETURN
CHANGES = (
    (IMPORT, IMPORT + "from sglang.srt.models.llama import LlamaMLP\n"),
    (NORM, SHARED + NORM),
    (EXPERTS, THROUGH + RETURN),
    ("Mixtral", "Zephyrine"),
    ("import ZephyrineConfig", "import MixtralConfig as ZephyrineConfig"),
)


def main() -> None:
    models = Path(sys.argv[1]) / "sglang" / "srt" / "models"
    text = (models / "mixtral.py").read_text()
    for old, new in CHANGES:
        if old not in text:
            raise SystemExit(f"{models / 'mixtral.py'} has no {old!r}")
        text = text.replace(old, new)
    (models / "zephyrine.py").write_text(text)


if __name__ == "__main__":
    main()
