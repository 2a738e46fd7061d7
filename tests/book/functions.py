"""What the rules' functions answer that few commands reach: every combination of arguments near an edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from runtime.server import bounds, buckets, channels, deepep, sizing
from runtime.server.backends import backend_row
from runtime.server.config import RuntimeConfig
from runtime.server.flags import flags_of
from runtime.server.flags.config_file import config_words
from runtime.server.flags.types import TYPES, graph_config
from runtime.server.layer_config import IndexerConfig, MLAConfig
from runtime.server.memory import gpu_defaults
from runtime.server.nearest import meant, nearest
from runtime.server.parallel_config import ParallelConfig
from runtime.server.patterns import Patterns
from runtime.server.pool_plan import table_headroom
from runtime.server.recurrent import GatedDeltaConfig, Mamba2Config
from runtime.server.releases import RELEASES
from runtime.server.requests import max_running_requests
from runtime.server.speculative_config import SpeculativeConfig
from tests.book.plain import plain, told, whole
from tests.book.rows import Row

_ENDS = (RELEASES[0], RELEASES[3], RELEASES[8], RELEASES[-1])


def patterns() -> Iterator[Row]:
    names = (
        "",
        "a",
        "ab",
        "abc",
        "aab",
        "b",
        "model.layers.10.mlp",
        "model.layers.1.mlp.experts",
        "_1 x",
        "A-z",
        "a\n",
        "aa",
        "aaa",
        "aaab",
        "abab",
        "]",
        "-",
        "a.b",
    )
    expressions = (
        "a", "^a", "a$", "a|b", "(a|b)b", "a*b", "a+b", "a?b", "a{2}b", "a{1,2}b", "a{2,}", "a{0,1}$",
        "[ab]b", "[^a]",
        "[a-c]{3}$", r"\w+$", r"\d", r".*\.\d+\.mlp$", r".*layers\.(1|10)\.mlp", r"\S+\s\S", r"[\w.]*$",
        r"(?:a|ab)c",
        "a{101}", "a**", "(?=a)", "a{2,1}", "(a", "a)", "[a", r"\1", "a{x}", "[]a]", "[a-]", r"\.", "a*?b",
        "^", "$", "a||b", "a{2}$", "a{2,}$", "a{1,2}$", "a+$", "a*$", "(ab)+$", "(ab){2}", "a{1,2}?$",
        r"[^\w]", r"[\d.]+",
        r"\D+$", r"\W", "((((((((((((((((((((a))))))))))))))))))))",
        "(((((((((((((((((((((a)))))))))))))))))))))", "a{100}", "a{1,",
    )  # fmt: skip
    for one in expressions:
        yield one, told(_matches, one, names)
    yield "several", [Patterns(["a$", "a", "b", ".*mlp"]).first(name) for name in names]


def _matches(expression: str, names: tuple[str, ...]) -> list[int | None]:
    known = Patterns([expression])
    return [known.first(name) for name in names]


def words() -> Iterator[Row]:
    known = ("--tp-size", "--dp-size", "--page-size", "--ep-size", "--tensor-parallel-size", "--dtype",
    "--device",
             "flashinfer_cutlass", "flashinfer_trtllm", "triton", "fp8", "mxfp8", "awq", "eagle", "EAGLE3",
             "abc", "bca",
             "acb", "a", "abcdef")  # fmt: skip
    for word in ("--tp-sise", "--tpsize", "--tp-szie", "--tp-ssize", "--pagesize", "--dtyp", "--dvice",
    "fp88", "mxfp4",
                 "flashinfer_cutlas", "eagle", "EAGEL", "tritton", "", "x", "aqw", "--ttp-size",
                 "--dttype", "fp", "8pf", "--tp-sizexx", "fp8xx", "--pgesz", "ab",
                 "abcd", "aabb", "--dp-szei"):  # fmt: skip
        yield word, [nearest(word, known), meant(word, known), nearest(word, known, 1)]


def values() -> Iterator[Row]:
    texts = ("1", "4k", "4Ki", "1.5k", "1.5Ki", "2M", "3Mi", "1G", "1Gi", "1T", "1Ti", "-1", " 8 ", "x",
    "", "None", "1e3",
             "null", "[1, 2]", "{}", "NaN", "true", "tc_piecewise", "full", "1.25M", "0.001k", "1.2345k",
             "[" * 100_000)  # fmt: skip
    for name, reads in TYPES.items():
        for text in texts:
            yield f"{name} {text:.40}", _read(reads, text)
    for release in (RELEASES[3], RELEASES[-1]):
        keys = flags_of(release.version).graph_keys
        for text in ('{"decode": {"max_bs": 64}}', "[]", '{"x": {}}', '{"decode": 1}',
        '{"prefill": {"nothing": 1}}',
                     '{"decode": {"backend": "tc_piecewise"}}', '{"prefill": {"backend": "full"}}', "{",
                     "{}"):  # fmt: skip
            for checks in (True, False):
                yield (
                    f"{release.version} {text} {checks}",
                    _read(graph_config, text, keys, checks),
                )


def _read(reads: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return plain(reads(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


def config_files() -> Iterator[Row]:
    """What a --config file's keys become on the command line, release by release."""
    keys = ("tp_size", "tp-size", "tp", "trust_remote_code", "cuda_graph_bs", "help", "version", "lora_paths",
            "cuda_graph_config", "no_such_thing", "cuda-graph-max-bs")  # fmt: skip
    values: tuple[Any, ...] = (True, [1, 2], {"a": 1}, None)
    for release in (RELEASES[0], RELEASES[-1]):
        line = flags_of(release.version)
        for key in keys:
            yield f"{release.version} {key}", [_read(config_words, line, {key: value}) for value in values]


def limits() -> Iterator[Row]:
    for table in ("PARALLEL", "SERVER", "SPECULATIVE", "FLAGS", "ASKED", "MODEL"):
        for name, bound in getattr(bounds, table).items():
            yield f"{table} {name}", [bound.least, bound.most]
    for value in (0, 1, 4, 5, -1, True, 4.5, "four", None, 10**19, 10**20, -(10**20), 10**30):
        yield f"{value}", told(bounds.check_size, "it", value, bounds.Bound(1, 4))
    for text in ("1", "", "²", "123456789", "1234567890", "-1", "x"):
        yield f"number {text}", bounds.is_number(text)
    for flag in ("1", "true", "TRUE", "y", "yes", "0", "", None, "on"):
        yield f"set {flag}", bounds.is_set(flag)


def counts() -> Iterator[Row]:
    for rows in (0, 1, 2, 3, 511, 512, 513, 1536, 4095, 4096, 4097, 8192, 9000):
        reach = buckets.tuning_buckets(max(1, rows))
        yield (
            f"buckets {rows}",
            [plain(reach), buckets.next_power_of_2(rows), buckets.bucket_of(rows, reach[:-1] or reach)],
        )
    for release, name, decode in product(_ENDS, ("flashinfer_cutlass", "flashinfer_trtllm"), (True, False)):
        for rows, chunk in ((100, 8192), (5000, 16384), (5000, 1000)):
            found = buckets.tuning_range(backend_row(name), release, rows, chunk, decode)
            yield f"range {release.version} {name} {rows} {chunk} {decode}", found
    for release, tokens, context, asked, dp in product(
        (RELEASES[0], RELEASES[-1]), (1, 1000, 500_000, 10**7), (1000, 131072), (None, 1, 300, 10_000), (1, 8)
    ):
        found = max_running_requests(tokens, context, asked, dp, release)
        yield f"requests {release.version} {tokens} {context} {asked} {dp}", found
    for release, tp in product(_ENDS, (1, 3, 4, 8)):
        gib = (0, 1, 20, 35, 60, 160)
        sizes = [
            size for edge in gib for size in (edge * 1024 - 1, edge * 1024, edge * 1024 + 1) if size >= 0
        ]
        yield (
            f"gpus {release.version} {tp}",
            [[size, *whole(gpu_defaults(size, tp, release)).values()] for size in sizes],
        )
    ways, widths = ("EAGLE", "NGRAM", "UNO"), product((1, 3, 6), (1, 4), (2, 4, 12), (1, 16, 64))
    for way, (steps, topk, drafted, page) in product(ways, widths):
        told_of = SpeculativeConfig(way, steps, topk, drafted)
        found = [table_headroom(told_of, page, one.pages_ahead) for one in RELEASES]
        yield f"headroom {way} {steps} {topk} {drafted} {page}", found
    yield "headroom", [table_headroom(None, page, "all") for page in (1, 64)]


def memory() -> Iterator[Row]:
    for quantized, rest in ((512, 64), (128, 0), (100, 0), (64, 8), (576, 0)):
        yield f"packed {quantized} {rest}", sizing.packed_fp8_bytes(quantized, rest)
    for indexer in (None, IndexerConfig(64, 128, 2048), IndexerConfig(32, 64, 1024, False)):
        mla = MLAConfig(1536, 512, 128, 64, 128, indexer)
        for dtype, packed in product(("bfloat16", "fp8_e4m3", "float32"), (True, False)):
            yield f"latent {indexer} {dtype} {packed}", sizing._mla_bytes_per_token(mla, dtype, packed)
    yield (
        "rest",
        [sizing.static_rest(60, 80, 0.9), sizing.kv_tokens(1000.7, 3.5, 16), sizing.kv_tokens(-5, 1, 1)],
    )
    yield "no keys", sizing.kv_tokens(10, 0, 1)
    for ranks in (1, 2, 4, 8, 16, 24, 32, 64, 128, 160):
        for mode in ("auto", "normal", "low_latency"):
            made = deepep.DeepEP(mode)
            modes = [made.is_normal(True), made.is_normal(False), made.has_normal, made.has_low_latency]
            yield f"deepep {mode} {ranks}", [*modes, told(made.buffers, ranks, 7168, 256)]
    for tokens, hidden, experts in (
        (1, 128, 1),
        (128, 7168, 256),
        (1024, 4096, 128),
        (1025, 64, 8),
        (0, 64, 8),
        (100, 200, 60),
    ):
        yield (
            f"low {tokens} {hidden} {experts}",
            told(deepep.low_latency_bytes, tokens, hidden, experts),
        )
    few, many = deepep.Config(24, 6, 128, 6, 128), deepep.Config(20, 8, 512, 20, 250)
    for ranks, pair in product((8, 16, 24), ((few, many), (many, few))):
        made = deepep.DeepEP("normal", configs=pair)
        yield f"configs {ranks} {pair[0].num_sms}", told(made.buffers, ranks, 7168, 256)
        yield (
            f"bytes {ranks} {pair[0].num_sms}",
            [of.nvlink_bytes(100, ranks) for of in pair] + [of.rdma_bytes(100, ranks) for of in pair],
        )
    for rdma in (0, 1, (1 << 29) - 128, (1 << 29) - 127, 3 << 29):
        yield f"heap {rdma}", deepep.heap_bytes(rdma)
    none = '"normal_combine": {}}'
    for text in ("", "{}", "x.json", "[]",
                 '{"normal_dispatch": {"num_sms": 24}, ' + none,
                 '{"normal_dispatch": {"num_sms": 0}, ' + none,
                 '{"normal_dispatch": {"num_sms": 1048576}, ' + none,
                 '{"normal_dispatch": {"num_sms": true}, ' + none,
                 '{"normal_dispatch": {"x": 1}, ' + none):  # fmt: skip
        yield f"config {text}", told(deepep.configs_of, text)
    for major, tp, nodes, off in product((8, 9, 10), range(1, 17), (1, 2), (True, False)):
        if tp % nodes == 0:
            parallel = ParallelConfig(tp=tp, nnodes=nodes)
            runtime = RuntimeConfig(sm_major=major, disable_custom_all_reduce=off)
            shared = channels.shared_buffer(parallel, runtime)
            if shared:
                yield (
                    f"shared {major} {tp} {nodes} {off}",
                    [shared, channels.shared_pointers(parallel, runtime)],
                )
    for heads, values, key, value, kernel, kind in product(
        (4, 16), (16, 32), (64, 128), (128,), (4, 2), ("heads",)
    ):
        delta = GatedDeltaConfig(heads, values, key, value, kernel, kind)  # type: ignore[arg-type]
        yield f"{delta}", [told(delta.state_shape, ranks) for ranks in (1, 2, 8)]
        yield f"{delta} bytes", delta.state_shape(1).nbytes(2, 4)
    for count, groups in ((64, 8), (64, 1), (48, 3), (10, 4)):
        yield f"mamba {count} {groups}", told(_mamba_states, count, groups)


def _mamba_states(count: int, groups: int) -> list[Any]:
    config = Mamba2Config(count, 64, groups, 128, 4, True, False, 0.001, 256)
    return [config.state_shape(ranks) for ranks in (1, 2, 8)]


TABLES_OF = {one.__name__: one for one in (
    patterns, words, values, config_files, limits, counts, memory,
)}  # fmt: skip
