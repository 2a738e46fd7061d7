"""The files of Triton configurations that the next start looks for, and the layers to tune for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.moe_configs.candidates import Layer, buckets
from runtime.record.layers import ConfigLookup, LayerCall
from runtime.record.record import Record
from sgl_tune.config_files.contents import LARGEST, contents
from sgl_tune.config_files.names import FOLDER, beside, config_name, triton_folder
from sgl_tune.config_files.provenance import Provenance, digest_of, provenance
from sgl_tune.config_files.root import VARIABLE
from sgl_tune.reading import bounded_bytes

STORE = "moe_configs"  # below a cache directory
_WHOLE = 8192
_NO_VARIABLE = "SGLang reads it in its own package alone: no variable names another folder"


@dataclass(frozen=True)
class Looked:
    """One file that a start looks for. `tuned`: how sgl-tune tuned the file in the root, if it did."""

    lookup: ConfigLookup
    tuned: Provenance | None

    @property
    def name(self) -> str:
        return Path(self.lookup.asked).name

    @property
    def state(self) -> str:
        """Return what a start finds today."""
        found = Path(self.lookup.found)
        if not self.lookup.found:
            return "not there"
        return "found" if found == Path(self.lookup.asked) else f"of another Triton: {found.parent.name}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.lookup.kind,
            "triton": self.lookup.triton,
            "found": self.lookup.found or None,
            "state": self.state,
            "tuned": self.tuned.says if self.tuned else None,
            "untunable": _NO_VARIABLE if self.lookup.kind == "dense" else None,
        }


@dataclass(frozen=True)
class LayerPlan:
    """One layer: the files of its two GEMMs (up, down), and the batch sizes to tune."""

    call: LayerCall
    names: tuple[str, str]
    kind: Layer
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class ConfigPlan:
    """What to tune. `source`: the folder whose files the server uses today, which a root must contain too."""

    root: Path
    files: tuple[Looked, ...]
    layers: tuple[LayerPlan, ...]
    source: Path | None
    triton: str
    sglang: str
    gpu: str
    arguments: dict[str, Any]

    @property
    def untuned(self) -> tuple[LayerPlan, ...]:
        tuned = {one.name for one in self.files if one.tuned}
        return tuple(layer for layer in self.layers if not tuned.issuperset(layer.names[:1]))

    @property
    def says(self) -> str:
        lacking = [one for one in self.files if one.state != "found" and not one.tuned]
        if not self.files:
            return ""
        return f"looks for {len(self.files)} files of Triton configurations; {len(lacking)} are untuned"

    def to_json(self) -> list[dict[str, Any]]:
        return [one.to_json() for one in self.files]


def config_plan(records: Sequence[Record], cache_dir: Path, again: bool = False) -> ConfigPlan:
    """Plan the files to tune. `again`: treat files that were tuned before as untuned."""
    first, root = records[0], cache_dir / STORE
    versions = first.asked.versions
    looked = {one.asked: one for record in records for one in record.configs}
    sglang = "" if again else versions.get("sglang", "")
    files = tuple(_looked(one, root, sglang) for one in looked.values())
    moe = [one for one in looked.values() if one.kind == "moe"]
    layers = {
        names: _layer(call, names, looked, record)
        for record in records
        for call in record.layers
        if not call.unreplayable and (names := _names(call))
    }
    plain = {k: v for k, v in first.arguments.items() if v is None or isinstance(v, (bool, int, float, str))}
    device = config_name(Path(moe[0].asked).name) if moe else None
    return ConfigPlan(
        root,
        files,
        layers=tuple(layers.values()),
        source=Path(moe[0].asked).parents[1] if moe else None,
        triton=moe[0].triton if moe else "",
        sglang=versions.get("sglang", ""),
        gpu=device.gpu if device else first.asked.gpu,
        arguments=plain,
    )


def _looked(lookup: ConfigLookup, root: Path, sglang: str) -> Looked:
    """Return what is known of one file. It counts as tuned if it is unchanged and for this Triton and
    SGLang."""
    file = root / FOLDER / triton_folder(lookup.triton) / Path(lookup.asked).name
    told = provenance(_bytes(file.with_name(beside(file.name))))
    raw = _bytes(file)
    is_ours = told and told.digest == digest_of(raw) and (told.triton, told.sglang) == (lookup.triton, sglang)
    return Looked(lookup, told if is_ours else None)


def _bytes(path: Path) -> bytes:
    try:
        return bounded_bytes(path, LARGEST)
    except OSError:
        return b""


def _names(call: LayerCall) -> tuple[str, str] | None:
    """Return the file names of both GEMMs; the second is "" if the release has none for it."""
    names = [Path(path).name for path in call.files]
    up = next((name for name in names if (told := config_name(name)) and not told.is_down), None)
    return (up, next((name for name in names if (t := config_name(name)) and t.is_down), "")) if up else None


def _layer(
    call: LayerCall, names: tuple[str, str], looked: dict[str, ConfigLookup], record: Record
) -> LayerPlan:
    told = config_name(names[0])
    assert told is not None
    words = dict(part.split("=", 1) for part in told.rest.replace(", ", ":").split(",") if part)
    block = words.get("block_shape", "[0:0]").strip("[]").split(":")
    dtype = words.get("dtype", "")
    sizes = call.named["w1"]["tensor"]["shape"], call.named["topk_ids"]["tensor"]["shape"]
    may_tma = bool(names[1]) and dtype not in ("int4_w4a16", "int8_w8a16")
    kind = Layer(sizes[0][0], sizes[1][1], dtype, int(block[1]), may_tma)
    found = next((looked[path].found for path in call.files if looked[path].found), "")
    known = sorted(contents(_bytes(Path(found))).entries) if found else []
    chunk = record.arguments.get("chunked_prefill_size")
    largest = chunk if isinstance(chunk, int) and chunk > 0 else _WHOLE
    return LayerPlan(call, names, kind, tuple(buckets(largest, known)))


def notes(plan: ConfigPlan) -> Iterator[str]:
    for one in plan.files:
        is_given = Path(one.lookup.asked).is_relative_to(plan.root.absolute())
        where = str(plan.root) if is_given else "the server's package"
        whose = "tuned" if is_given else f"with {VARIABLE}={plan.root} the tuned one"
        tuned = f"; {whose}: {one.tuned.says}" if one.tuned else ""
        why = f" ({_NO_VARIABLE})" if one.lookup.kind == "dense" else ""
        yield f"{one.name}: {one.state} in {where}{tuned}{why}"
