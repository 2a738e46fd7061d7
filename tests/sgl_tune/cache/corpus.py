"""Cache files of every kind, good and broken, as bytes, each with what FlashInfer's loader makes of it."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.flashinfer.versions import NEWEST, FlashInfer, flashinfer_of
from sgl_tune.cache.record import serialise

TARGET = {
    "flashinfer_version": "0.7.2",
    "cuda_version": "13.0",
    "cublas_version": "13.1.0",
    "cudnn_version": "91900",
    "cudnn_frontend_version": "1.32.0",
    "cutlass_dsl_version": "unknown",
    "gpu": "NVIDIA H200",
}
HOT = ["cuda_graph_profile_replays", None, "l2_cache_policy", "hot"]
COLD = ["cuda_graph_profile_replays", 1, "l2_cache_policy", "cold"]
CHOSEN = {"time_ms": 0.012345, "runner_up_ms": 0.0125, "margin": 0.012556, "candidates": 45}
BUCKETS = (1, 2, 4, 8, 16, 4096, 8192)


@dataclass(frozen=True)
class Case:
    """`loads` is loaded, hard, soft, or what FlashInfer 0.7's loader raises, with this machine as target."""

    raw: bytes
    loads: str


def target_of(version: str) -> dict[str, str]:
    """The same machine with another FlashInfer."""
    names = flashinfer_of(version).environment
    return {name: TARGET[name] for name in names} | {"flashinfer_version": version}


def moe_key(bucket: int, op: str = "gemm1", tp: int = 1) -> str:
    dtypes = ", ".join(["torch.bfloat16"] * 3)
    return (
        f"('trtllm::fused_moe::{op}', 'MoERunner', (({bucket}, 2048), (128, 1536, 2048), (0,), "
        f"(128, 2048, 768), (0,)), ({dtypes}, 8, {tp}, 1, 1, False, False, False, False, False, False, "
        "True, 3, False, False))"
    )


def moe_entries(buckets: tuple[int, ...] = BUCKETS) -> dict[str, Any]:
    """As a cutlass MoE leaves them: both GEMMs in every bucket."""
    return {
        moe_key(bucket, op): ["MoERunner", tactic + index, HOT]
        for op, tactic in (("gemm1", 20), ("gemm2", 40))
        for index, bucket in enumerate(buckets)
    }


def nested(depth: int) -> bytes:
    return b"[" * depth + b"1" + b"]" * depth


def build_corpus(
    metadata: dict[str, str], entries: dict[str, Any], writer: FlashInfer = NEWEST
) -> dict[str, Case]:
    """The same cases for any target and any good content (an entry or more)."""
    good = serialise(metadata, entries, writer=writer)
    document = json.loads(good)
    key = next(iter(entries))
    cases = {"good": Case(good, "loaded")}
    for group in (_unparsable, _wrong_top_level):
        cases |= {name: Case(*case) for name, case in group(good).items()}
    for name, (value, loads) in {**_KILLING_VALUES, **_ODD_VALUES}.items():
        cases[name] = Case(_dump({**document, key: value}), loads)
    for name, (change, loads) in {**_ENVIRONMENTS, **_MEMBERS}.items():
        cases[name] = Case(_dump(change(document)), loads)
    cases |= {name: Case(raw, loads) for name, (raw, loads) in _raw_values(document, key).items()}
    return cases


def build_chosen(metadata: dict[str, str], entries: dict[str, Any]) -> dict[str, Case]:
    """Files of FlashInfer 0.7.4, which writes beside an entry's policy how its tactic was chosen."""
    document = json.loads(serialise(metadata, {key: [*value, CHOSEN] for key, value in entries.items()}))
    key = next(iter(entries))
    odd = {name: Case(_dump({**document, key: text}), ends) for name, (text, ends) in _CHOSEN_VALUES.items()}
    return {"chosen": Case(_dump(document), "loaded"), **odd}


def _dump(document: Any) -> bytes:
    return json.dumps(document, indent=2).encode()


def _unparsable(good: bytes) -> dict[str, tuple[bytes, str]]:
    text = good.decode()
    half = len(text) // 2
    lines = text.splitlines(keepends=True)
    conflict = [*lines[:4], "<<<<<<< HEAD\n", lines[4], "=======\n", lines[4], ">>>>>>> theirs\n", *lines[5:]]
    return {
        "empty": (b"", "JSONDecodeError"),
        "whitespace": (b" \n", "JSONDecodeError"),
        "truncated": (good[:half], "JSONDecodeError"),
        "zeroed": (b"\0" * 512, "JSONDecodeError"),
        "zeroed-tail": (good[:half] + b"\0" * half, "JSONDecodeError"),
        "byte-order-mark": (b"\xef\xbb\xbf" + good, "JSONDecodeError"),
        "trailing-comma": (good[:-2] + b",\n}", "JSONDecodeError"),
        "two-documents": (good + good, "JSONDecodeError"),
        "merge-markers": ("".join(conflict).encode(), "JSONDecodeError"),
        "single-quotes": (good.replace(b'"', b"'"), "JSONDecodeError"),
        "comment": (b"// tuned by hand\n" + good, "JSONDecodeError"),
        "html": (b"<html><body>404 Not Found</body></html>", "JSONDecodeError"),
        "git-lfs-pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "JSONDecodeError"),
        "gzip": (b"\x1f\x8b\x08\0\0\0\0\0\2\3" + gzip.compress(good)[10:], "UnicodeDecodeError"),
        "utf-16": (text.encode("utf-16"), "UnicodeDecodeError"),
        "latin-1": (good.replace(b"H200", b"H200\xe9"), "UnicodeDecodeError"),
    }


def _wrong_top_level(good: bytes) -> dict[str, tuple[bytes, str]]:
    return {
        "top-level-list": (b"[" + good + b"]", "TypeError"),
        "top-level-string": (b'"cache"', "AttributeError"),
        "top-level-number": (b"7", "AttributeError"),
        "top-level-null": (b"null", "AttributeError"),
        "top-level-bool": (b"true", "AttributeError"),
        "empty-object": (b"{}", "loaded"),
        "windows-newlines": (good.replace(b"\n", b"\r\n"), "loaded"),
        "one-line": (json.dumps(json.loads(good)).encode(), "loaded"),
    }


_KILLING_VALUES: dict[str, tuple[Any, str]] = {
    "entry-int": (7, "TypeError"),
    "entry-null": (None, "TypeError"),
    "entry-bool": (True, "TypeError"),
    "entry-float": (1.5, "TypeError"),
    "entry-dict": ({"runner": "MoERunner"}, "KeyError"),
    "entry-dict-numbered": ({"0": "MoERunner", "1": 3}, "KeyError"),
    "entry-empty": ([], "IndexError"),
    "entry-empty-string": ("", "IndexError"),
    "entry-runner-only": (["MoERunner"], "IndexError"),
    "entry-one-letter": ("F", "IndexError"),
    "runner-int": ([3, 1, HOT], "AttributeError"),
    "runner-null": ([None, 1, HOT], "AttributeError"),
    "runner-list": ([["MoERunner"], 1, HOT], "AttributeError"),
    "policy-int": (["MoERunner", 1, 3], "TypeError"),
    "policy-null": (["MoERunner", 1, None], "TypeError"),
    "policy-bool": (["MoERunner", 1, True], "TypeError"),
}

_ODD_VALUES: dict[str, tuple[Any, str]] = {
    "entry-without-policy": (["MoERunner", 21], "loaded"),
    "entry-string": ("Foo", "loaded"),
    "policy-string": (["MoERunner", 21, "hot"], "loaded"),
    "policy-dict": (["MoERunner", 21, {"l2_cache_policy": "hot"}], "loaded"),
    "policy-cold": (["MoERunner", 21, COLD], "loaded"),
    "policy-empty": (["MoERunner", 21, []], "loaded"),
    "four-elements": (["MoERunner", 21, HOT, 4], "loaded"),
    "runner-other": (["OtherRunner", 21, HOT], "loaded"),
    "runner-cudnn-index": (["CudnnFp4GemmRunner", 3, HOT], "loaded"),
    "runner-cudnn-bool": (["CudnnFp4GemmRunner", True, 5], "loaded"),
    "runner-cudnn-fallback": (["CudnnFp4GemmRunner", -1, HOT], "loaded"),
    "runner-cudnn-plan": (["CudnnFp4GemmRunner", ["eng0", 1], HOT], "loaded"),
    "tactic-nan": (["MoERunner", float("nan"), HOT], "loaded"),
    "tactic-infinite": (["MoERunner", float("inf"), HOT], "loaded"),
    "tactic-dict": (["MoERunner", {"tile": [128]}, HOT], "loaded"),
    "tactic-null": (["MoERunner", None, HOT], "loaded"),
    "tactic-string": (["MoERunner", "21", HOT], "loaded"),
    "tactic-fallback": (["MoERunner", -1, HOT], "loaded"),
    "tactic-tuple": (["MoERunner", [128, [2, 1], [0, True]], HOT], "loaded"),
}

_CHOSEN_VALUES: dict[str, tuple[Any, str]] = {
    "chosen-alone": (["MoERunner", 21, HOT, {**CHOSEN, "runner_up_ms": None, "margin": None}], "loaded"),
    "chosen-tactic-nan": (["MoERunner", float("nan"), HOT, CHOSEN], "loaded"),
    "chosen-tactic-infinite": (["MoERunner", float("inf"), HOT, CHOSEN], "loaded"),
    "chosen-tactic-dict": (["MoERunner", {"tile": 1}, HOT, CHOSEN], "loaded"),
    "chosen-number": (["MoERunner", 21, HOT, 0.0123], "loaded"),
    "chosen-list": (["MoERunner", 21, HOT, [0.0123]], "loaded"),
    "chosen-policy-null": (["MoERunner", 21, None, CHOSEN], "TypeError"),
    "chosen-runner-null": ([None, 21, HOT, CHOSEN], "AttributeError"),
    "five-elements": (["MoERunner", 21, HOT, CHOSEN, 5], "loaded"),
}


def _with_metadata(**members: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: {**document, "_metadata": {**document["_metadata"], **members}}


def _without_metadata_member(member: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(document: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in document["_metadata"].items() if name != member}
        return {**document, "_metadata": kept}

    return change


def _set(**members: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: {**document, **members}


def _drop(member: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: {name: value for name, value in document.items() if name != member}


_ENVIRONMENTS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "other-gpu": (_with_metadata(gpu="NVIDIA B200"), "hard"),
    "other-cudnn": (_with_metadata(cudnn_version="90000"), "hard"),
    "other-flashinfer": (_with_metadata(flashinfer_version="0.6.12"), "hard"),
    "metadata-number": (_with_metadata(cudnn_version=91900), "hard"),
    "metadata-list": (_with_metadata(gpu=["NVIDIA H200"]), "hard"),
    "metadata-nan": (_with_metadata(gpu=float("nan")), "hard"),
    "metadata-hard-and-soft": (_with_metadata(gpu="NVIDIA B200", cudnn_version=None), "hard"),
    "cudnn-unknown": (_with_metadata(cudnn_version="unknown"), "soft"),
    "cudnn-none": (_with_metadata(cudnn_version="None"), "soft"),
    "cudnn-null": (_with_metadata(cudnn_version=None), "soft"),
    "field-missing": (_without_metadata_member("cudnn_version"), "soft"),
    "metadata-empty": (_set(_metadata={}), "soft"),
    "metadata-text": (_set(_metadata="NVIDIA H200"), "soft"),
    "metadata-false": (_set(_metadata=False), "soft"),
    "wildcard": (_with_metadata(gpu="*", cudnn_version="*"), "loaded"),
    "further-metadata": (_with_metadata(driver="580.1", tuned_by={"tool": "sgl-tune"}), "loaded"),
    "metadata-missing": (_drop("_metadata"), "loaded"),
    "metadata-null": (_set(_metadata=None), "loaded"),
}

_MEMBERS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "records": (_set(_records={"megamoe": {"k": [1, 2]}}), "loaded"),
    "records-empty": (_set(_records={}), "loaded"),
    "records-list": (_set(_records=[]), "ValueError"),
    "records-null": (_set(_records=None), "ValueError"),
    "records-text": (_set(_records="x"), "ValueError"),
    "records-list-other-gpu": (
        lambda document: _with_metadata(gpu="NVIDIA B200")({**document, "_records": []}),
        "hard",
    ),
    "broken-entry-other-gpu": (
        lambda document: _with_metadata(gpu="NVIDIA B200")({**document, moe_key(512): 7}),
        "hard",
    ),
    "generation-wrong": (_set(_generation="0" * 64), "loaded"),
    "generation-number": (_set(_generation=7), "loaded"),
    "generation-missing": (_drop("_generation"), "loaded"),
    "junk-keys": (_set(note=["R", 1], **{"": ["R", 2], "('op', 'R')": ["R", 3]}), "loaded"),
    "surrogate": (_set(**{"\ud800": ["R\ud800", 1]}), "loaded"),
    "unknown-member": (_set(_comment="tuned on node 7"), "loaded"),
    "unknown-number": (_set(_comment=7), "TypeError"),
    "every-entry-gone": (
        lambda document: {name: value for name, value in document.items() if name.startswith("_")},
        "loaded",
    ),
}


def _raw_values(document: dict[str, Any], key: str) -> dict[str, tuple[bytes, str]]:
    """What `json.dumps` cannot write: the value is put in as text."""

    def put(member: str, value: bytes) -> bytes:
        return _dump({**document, member: "@@"}).replace(b'"@@"', value)

    duplicate = json.dumps(key).encode() + b': ["MoERunner", 1]'
    return {
        "number-of-5000-digits": (put(key, b'["MoERunner", ' + b"9" * 5000 + b"]"), "ValueError"),
        "nesting-100000": (put(key, b'["MoERunner", ' + nested(100_000) + b"]"), "RecursionError"),
        "tactic-nested-900": (put(key, b'["MoERunner", ' + nested(900) + b"]"), "RecursionError"),
        "tactic-nested-100": (put(key, b'["MoERunner", ' + nested(100) + b"]"), "loaded"),
        "records-nested-900": (put("_records", b'{"a": ' + nested(900) + b"}"), "RecursionError"),
        "duplicate-key": (_dump(document)[:-2] + b",\n  " + duplicate + b"\n}", "loaded"),
        "duplicate-key-overruled": (b"{" + duplicate + b"," + _dump(document)[1:], "loaded"),
        "raw-utf-8": (put("_comment", '"réglé à la main"'.encode()), "loaded"),
    }
