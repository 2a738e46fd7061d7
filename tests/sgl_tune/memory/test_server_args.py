"""The flags that a server prints of itself."""

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.memory.command import flags_of_log, not_taken

REPR = (
    "server_args=ServerArgs(model_path='zai-org/GLM-5.1-FP8', tokenizer_path='zai-org/GLM-5.1-FP8', "
    "tp_size=8, dp_size=8, enable_dp_attention=True, chunked_prefill_size=2048, mem_fraction_static=0.9, "
    "quantization=None, max_running_requests=None, disable_cuda_graph=False, kv_cache_dtype='auto', "
    "speculative_draft_model_path=None, draft_tp_size=4)"
)


@pytest.mark.parametrize(
    "text", [REPR, "server_args={'" + REPR[23:-1].replace("=", "': ").replace(", ", ", '") + "}"]
)
def test_both_forms_are_read(text: str) -> None:
    flags = flags_of_log(text, ServerFlags())
    assert flags.model_path == "zai-org/GLM-5.1-FP8"
    assert (flags.tp, flags.dp, flags.enable_dp_attention) == (8, 8, True)
    assert flags.mem_fraction_static == 0.9 and flags.more["disable_cuda_graph"] is False
    assert (flags.quantization, flags.max_running_requests) == (None, None)
    assert "kv_cache_dtype" not in flags.more


def test_the_chunk_was_divided_before_it_was_printed() -> None:
    assert flags_of_log(REPR, ServerFlags()).chunked_prefill_size == 2048 * 8


def test_given_flags_win() -> None:
    flags = flags_of_log(REPR, ServerFlags.of(mem_fraction_static=0.85, gpu="b200"))
    assert flags.mem_fraction_static == 0.85 and flags.target.gpu == "b200" and flags.tp == 8


@pytest.mark.parametrize(
    "text", ["", "server_args=", "server_args=ServerArgs(tp_size=many, dtype=')", "x" * 70000]
)
def test_nonsense_says_nothing(text: str) -> None:
    assert flags_of_log(text, ServerFlags()).given() == {}


def test_what_takes_memory_and_is_no_flag_of_ours_is_named() -> None:
    assert not_taken(REPR) == ()
    more = ", max_total_tokens=131072, cpu_offload_gb=8, enable_lora=None, json_model_override_args='{}'"
    given = REPR[:-1] + more + ", enable_symm_mem=True)"
    assert not_taken(given) == ("--cpu-offload-gb 8", "--enable-symm-mem True")
