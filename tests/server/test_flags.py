"""Command lines, read by each release's own table; the wheels' own answers are recorded in tests/oracle."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from runtime.server.asked import Asked, default_of, spellings
from runtime.server.errors import ConfigError
from runtime.server.flags import CommandLine, Refused, config_words, flags_of, parse
from runtime.server.flags.spelling import name_of, spelled
from runtime.server.nearest import nearest
from runtime.server.releases import RELEASES, release_named
from tests.oracle.grammar import differences, recorded

MODEL = ["--model-path", "org/model"]


def refusal(command_line: CommandLine, *words: str) -> Refused:
    with pytest.raises(Refused) as caught:
        parse(command_line, [*MODEL, *words])
    return caught.value


def test_each_release_reads_recorded_lines_as_its_own_parser_did() -> None:
    found = [difference for known in recorded() for difference in differences(*known)]
    assert not found, "\n".join(map(str, found[:5]))


def test_recorded_lines_are_of_every_release_and_both_taken_and_refused() -> None:
    kinds = {(release, "refused" in answer) for release, _, answers in recorded() for answer in answers}
    releases = [f"0.5.{minor}" for minor in range(12, 24)]
    assert kinds == {(release, refused) for release in releases for refused in (True, False)}


def test_a_post_release_without_a_table_speaks_as_its_release() -> None:
    assert flags_of("0.5.17.post3").flags == flags_of("0.5.17").flags
    assert flags_of("0.5.17+cu130").release == "0.5.17"


def test_an_unknown_release_is_said() -> None:
    with pytest.raises(ConfigError, match=r"SGLang 0\.4\.1: its command line is not known"):
        flags_of("0.4.1")


def test_what_is_not_asked_is_the_default_of_the_release() -> None:
    asked = parse(flags_of("0.5.23"), [*MODEL, "--tp", "8"])
    assert asked.given == {"model_path": "org/model", "tp_size": 8}
    assert asked.spelled["tp_size"] == "--tp-size"  # --tp begins that name alone
    assert asked.values["dp_size"] == 1 and asked.values["dtype"] == "auto"


def test_a_deprecated_flag_works_and_names_what_to_write_instead() -> None:
    asked = parse(flags_of("0.5.17"), [*MODEL, "--cuda-graph-max-bs", "64"])
    assert asked.given["cuda_graph_max_bs_decode"] == 64
    assert asked.deprecated == {"--cuda-graph-max-bs": "--cuda-graph-max-bs-decode"}


def test_a_flag_without_effect_is_named() -> None:
    asked = parse(flags_of("0.5.13"), [*MODEL, "--collect-tokens-histogram"])
    assert asked.ignored == ("--collect-tokens-histogram",) and list(asked.given) == ["model_path"]


def test_serve_takes_the_model_as_its_first_word_where_the_release_does() -> None:
    assert (
        parse(flags_of("0.5.23"), ["org/model", "--tp", "2"], serve=True).given["model_path"] == "org/model"
    )
    with pytest.raises(Refused, match="required: --model-path"):
        parse(flags_of("0.5.13"), ["org/model"], serve=True)
    with pytest.raises(Refused, match="required: --model-path"):
        parse(flags_of("0.5.23"), ["org/model"])


def test_serve_takes_its_own_model_type_and_gives_it_to_no_server() -> None:
    known = flags_of("0.5.23")
    for words in (["--model-type", "llm"], ["--model-type=auto"]):
        assert parse(known, [*MODEL, *words], serve=True).given == {"model_path": "org/model"}
        assert parse(known, [*words, *MODEL], serve=True).given == {"model_path": "org/model"}
    with pytest.raises(Refused, match="--model-type requires a value"):
        parse(known, [*MODEL, "--model-type"], serve=True)
    for words in (["--model-type", "diffusion"], ["--model-type=diffusion"], ["--model-type="]):
        with pytest.raises(Refused, match="starts no language model"):
            parse(known, [*MODEL, *words], serve=True)


def test_a_mistyped_flag_is_refused_with_the_one_that_was_meant() -> None:
    error = refusal(flags_of("0.5.23"), "--kv-cache-dtpye", "fp8_e4m3")
    assert error.reason == "unrecognized arguments: --kv-cache-dtpye fp8_e4m3"
    assert error.remedy == "--kv-cache-dtpye is unknown, --kv-cache-dtype is near"


def test_a_mistyped_flag_is_named_whatever_its_value() -> None:
    assert refusal(flags_of("0.5.23"), "--moe-dnse-tp-size= 7").suggestions[0] == "--moe-dense-tp-size"


def test_a_mistyped_model_path_is_named_though_argparse_misses_the_model() -> None:
    with pytest.raises(Refused) as caught:
        parse(flags_of("0.5.17"), ["--modle-path", "org/model"])
    assert caught.value.reason.startswith("the following arguments are required")
    assert caught.value.suggestions[0] == "--model-path"


def test_an_ambiguous_flag_names_its_readings_shortest_first() -> None:
    assert refusal(flags_of("0.5.17"), "--pp", "2").suggestions[0] == "--pp-size"
    error = refusal(flags_of("0.5.23"), "--cuda-graph-max-bs", "64")
    assert set(error.suggestions) == {"--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-prefill"}


def test_help_starts_no_server() -> None:
    assert refusal(flags_of("0.5.23"), "--help").reason == "it asks for help and starts no server"


@pytest.mark.parametrize("word, meant", [
    ("--modle-path", "--model-path"), ("--tpsize", "--tp-size"), ("--dpp-size", "--dp-size"),
    ("--chunked-prefil-size", "--chunked-prefill-size"), ("--enable-dp-atention", "--enable-dp-attention"),
    ("--apge-szie", "--page-size"), ("--tp-siez", "--tp-size"), ("--hosst", "--host"),
])  # fmt: skip
def test_the_nearest_flag_comes_first(word: str, meant: str) -> None:
    assert nearest(word, flags_of("0.5.23").by_name)[0] == meant


def test_a_word_unlike_any_flag_suggests_none() -> None:
    assert nearest("--completely-different", flags_of("0.5.23").by_name) == []


def test_of_equals_the_one_that_begins_alike_comes_first() -> None:
    assert nearest("--dp-siz", ["--ep-size", "--tp-siz", "--dp-sizes"])[0] == "--tp-siz"
    assert nearest("--abcd", ["--xbcd", "--abxd", "--abcx"]) == ["--abcx", "--abxd", "--xbcd"]
    assert nearest("--abcd", ["--abcde", "--abc", "--bcd"]) == ["--abcde", "--abc", "--bcd"]


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["--tp-size", "2", "-h"]])
def test_help_is_one_in_short_too(words: list[str]) -> None:
    assert refusal(flags_of("0.5.12"), *words).reason == "it asks for help and starts no server"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"lora_name": "a"}', "names no lora_name or no lora_path"),
        ('{"lora_path": "/b"}', "names no lora_name or no lora_path"),
        ('{"lora_name": }', "is not JSON"),
        ("{nope}", "is not JSON"),
    ],
)
def test_an_adapter_in_json_has_a_name_and_a_path(text: str, reason: str) -> None:
    assert reason in refusal(flags_of("0.5.23"), "--lora-paths", "a=/b", text).reason


def test_adapters_are_paths_names_and_json() -> None:
    words = ["/b", "a=/b", ' {"lora_name": "a", "lora_path": "/b"} ', "[1]"]
    found = parse(flags_of("0.5.23"), [*MODEL, "--lora-paths", *words]).given["lora_paths"]
    assert found == ["/b", "a=/b", {"lora_name": "a", "lora_path": "/b"}, "[1]"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"decoder": {}}', "phase 'decoder' is none of decode, prefill"),
        ('{"decode": 3}', "'decode' must hold a JSON object"),
        ("[3]", "is not a JSON object"),
        ('{"decode": {"x": 3}}', "'decode' has no 'x': backend, max_bs, bs"),
        ('{"decode": {"max_bs": NaN}}', "is not JSON"),
        ('{"decode": {"backend": "tc_piecewise"}}', "tc_piecewise was removed"),
    ],
)
def test_graphs_are_told_phase_by_phase(text: str, reason: str) -> None:
    assert reason in refusal(flags_of("0.5.23"), "--cuda-graph-config", text).reason


def test_a_graph_backend_that_was_removed_is_one_before() -> None:
    text = '{"decode": {"backend": "tc_piecewise"}}'
    found = parse(flags_of("0.5.17"), [*MODEL, "--cuda-graph-config", text]).given
    assert found["cuda_graph_config"] == {"decode": {"backend": "tc_piecewise"}}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("12", 12), (" 4k ", 4000), ("4Ki", 4096), ("1.5k", 1500), ("1.25G", 1_250_000_000)),
        *(("2M", 2 * 10**6), ("3T", 3 * 10**12), ("2Mi", 2 << 20), ("2Gi", 2 << 30), ("2Ti", 2 << 40)),
    ],
)
def test_an_amount_may_have_a_unit(text: str, number: int) -> None:
    assert parse(flags_of("0.5.23"), [*MODEL, "--max-total-tokens", text]).given["max_total_tokens"] == number


@pytest.mark.parametrize("text", ["x", "1.5Ki", "4K", "1.5", "k"])
def test_an_amount_of_another_form_is_refused(text: str) -> None:
    assert refusal(flags_of("0.5.23"), "--max-total-tokens", text).reason


def test_every_flag_can_be_advised_by_its_server_argument() -> None:
    assert flags_of("0.5.23").by_field["tp_size"].names[0] == "--tp-size"
    assert flags_of("0.5.17").by_field["cuda_graph_max_bs_decode"].name == "--cuda-graph-max-bs-decode"


def test_reading_a_command_imports_no_torch_and_no_other_release() -> None:
    code = (
        "import sys; from runtime.server.flags import flags_of, parse;"
        "parse(flags_of('0.5.23'), ['--model-path', 'x']);"
        "print([m for m in sys.modules if m == 'torch' or '.flags.v' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "['runtime.server.flags.v0_5_23']"


def test_a_config_file_becomes_words_of_the_command_line() -> None:
    config = {
        "tp-size": 8,
        "trust-remote-code": True,
        "disable-radix-cache": False,
        "lora-target-modules": ["a", "b"],
    }
    words = ["--tp-size", "8", "--trust-remote-code", "--lora-target-modules", "a", "b"]
    assert config_words(flags_of("0.5.23"), config) == words


def test_a_config_files_mapping_is_json_where_the_release_writes_it_so() -> None:
    config = {"json-model-override-args": {"a": None}}
    assert config_words(flags_of("0.5.14"), config)[1] == '{"a": null}'
    assert config_words(flags_of("0.5.13"), config)[1] == "{'a': None}"


def test_a_config_file_cannot_hold_a_flag_that_is_deprecated_or_takes_both_ways() -> None:
    with pytest.raises(Refused, match="Unsupported config option 'lora_paths'"):
        config_words(flags_of("0.5.17"), {"lora-paths": ["a"]})
    with pytest.raises(Refused, match="Unsupported config option 'lora_strict_loading'"):
        config_words(flags_of("0.5.17"), {"lora-strict-loading": True})


def test_a_key_that_a_deprecated_flag_sets_too_is_refused_until_names_are_keys() -> None:
    """server_args_config_parser.py of 0.5.14: `unsupported_actions` holds a field with one such action."""
    with pytest.raises(Refused, match="Unsupported config option 'cuda_graph_max_bs_decode'"):
        config_words(flags_of("0.5.14"), {"cuda-graph-max-bs-decode": 64})
    words = ["--cuda-graph-max-bs-decode", "64"]
    assert config_words(flags_of("0.5.23"), {"cuda-graph-max-bs-decode": 64}) == words


def test_a_key_of_a_config_file_is_a_switch_by_any_of_its_names_in_newer_releases() -> None:
    flag = next(
        f for f in flags_of("0.5.23").flags if f.action == "set" and len(f.names) > 1 and not f.instead
    )
    other = flag.names[1][2:]
    assert config_words(flags_of("0.5.23"), {other: True}) == [f"--{other}"]


def test_a_config_file_names_what_it_cannot_hold_by_any_of_its_names_in_newer_releases() -> None:
    older = config_words(flags_of("0.5.17"), {"no-lora-strict-loading": True})
    assert older == ["--no-lora-strict-loading", "true"]
    with pytest.raises(Refused, match="Unsupported config option 'no_dcp_replicate_q_proj'"):
        config_words(flags_of("0.5.23"), {"no-dcp-replicate-q-proj": True})


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000])
@pytest.mark.parametrize("flag", ["--cuda-graph-config", "--lora-paths", "--mm-process-config"])
def test_json_without_a_bottom_is_refused(flag: str, deep: str) -> None:
    if flag == "--lora-paths" and not deep.endswith("}"):
        pytest.skip("that is a path")
    assert refusal(flags_of("0.5.23"), flag, deep).reason


@pytest.mark.parametrize(
    ("version", "argument", "written"),
    [
        ("0.5.12", "ep_size", "--ep-size 8"),
        ("0.5.23", "ep_size", "--ep-size 8"),
        ("0.5.13", "cuda_graph_max_bs", "--cuda-graph-max-bs 8"),
        ("0.5.21", "cuda_graph_max_bs", "--cuda-graph-max-bs-decode 8"),
    ],
)
def test_an_argument_is_spelled_as_its_release_takes_it(version: str, argument: str, written: str) -> None:
    assert spelled(release_named(version).release, argument, 8) == written
    parse(flags_of(version), ["--model-path", "m", *written.split()])


@pytest.mark.parametrize("number", ["-50", "-0.5", "-12.25"])
def test_a_negative_number_is_taken_for_no_unknown_flag(number: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse(flags_of("0.5.23"), ["--tp-size", "x", "--chunked-prefill-size", number])
    assert refusal.value.unknown is None and refusal.value.remedy is None


def test_a_switch_is_spelled_alone_and_an_argument_by_its_name() -> None:
    release = release_named("0.5.23").release
    assert spelled(release, "enable_dp_attention", True) == "--enable-dp-attention"
    assert name_of(release, "cuda_graph_max_bs") == "--cuda-graph-max-bs-decode"
    assert name_of(release, "nobody_knows") == "--nobody-knows"


# What the rules must tell apart from its default, or what only some of them have.
_UNSET_HERE = {
    *("model_path", "served_as", "others", "attn_dp_size", "speculative_attention_mode"),
    *("swa_full_tokens_ratio", "mamba_full_memory_ratio", "mm_enable_dp_encoder", "hicache_mem_layout"),
}


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_what_nobody_asks_for_is_what_the_release_has_unset(release: str) -> None:
    def plain(value: Any) -> Any:
        return None if value is False or value in ((), []) else value

    defaults, held = flags_of(release).defaults, 0
    for name in {one.name for one in fields(Asked)} - _UNSET_HERE:
        for theirs in (defaults[one] for one in spellings(name) if one in defaults):
            assert plain(default_of(name)) == plain(theirs), name
            held += 1
    assert held > 80
