"""The page of a plan, beside the same plan as JSON."""

import pytest

from runtime.server.cache_key import named_parts
from tests.sgl_tune.planning import BLACKWELL, HOPPER, plan, warm

_QWEN = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass", *HOPPER)
_IDLE = ("--model-path", "Qwen/Qwen3-30B-A3B", *HOPPER)
_R1 = (*BLACKWELL, "--", "sglang", "serve", "--model-path", "deepseek-ai/DeepSeek-V3", "--tp-size", "8")
_DRAFTED = (*_R1, "--moe-runner-backend", "flashinfer_trtllm", "--speculative-algorithm", "EAGLE")
_ATTENTION = (*_R1, "--dp-size", "2", "--enable-dp-attention")
PLANS = {
    "one file": (_QWEN, "tp 1, pp 1, ep 1"),
    "replicas": ((*_QWEN, "--dp", "2"), "tp 1, pp 1, ep 1, dp 2 (replicas)"),
    "attention": (_ATTENTION, "tp 8, pp 1, ep 1, dp 2 (attention)"),
    "a draft": (_DRAFTED, "tp 8, pp 1, ep 1"),
}


@pytest.mark.parametrize("what", PLANS)
def test_the_page_tells_what_the_json_does(what: str) -> None:
    arguments, sizes = PLANS[what]
    data, page = plan(*arguments), warm(*arguments).out.splitlines()
    assert page[0] == data["verdict"]["says"] and page[1] == f"  {data['deployment']['model_path']}: {sizes}"
    arch = "sm100" if arguments[: len(BLACKWELL)] == BLACKWELL else "sm90"
    assert page[2] == f"  SGLang 0.5.23, FlashInfer 0.7.2, {arch}"
    assert [line for line in page if line.startswith("  - ")] == [f"  - {note}" for note in data["notes"]]
    drafts = [line for line in page if line.startswith("Key of the draft worker: ")]
    assert drafts == ([f"Key of the draft worker: {data['draft']['key']}"] if what == "a draft" else [])
    for name, part in named_parts(tuple(data["key_parts"])).items():
        assert f"  {name:<21}{part or '-'}" in page
    target = page[page.index(f"Key: {data['key']}") : page.index(drafts[0]) if drafts else None]
    files = "1 file" if len(data["files"]) == 1 else f"{len(data['files'])} files"
    at = target.index(f"{files} in {data['cache_dir']}/{data['files'][0].rpartition('/')[0]}")
    for line, group in zip(target[at + 1 :], data["groups"], strict=False):
        first, last = (group[i].rpartition("/")[2] for i in (0, -1))
        many = f"  {first} .. {last}: {len(group)}, the same bytes in each"
        assert line == (f"  {first}" if len(group) == 1 else many)
    rows = {line.split()[0]: line.split()[1:] for line in target[at:] if "::" in line}
    for op in data["ops"]:
        serving = op["serving_only"]
        ends = ["..", str(serving[-1])] if len(serving) > 2 else []
        shown = [f"{one}," for one in serving[:-1]] + [str(serving[-1])] if len(serving) == 2 else []
        tail = shown or [str(one) for one in serving[:1]] + ends
        keys, buckets = op["keys"], op["buckets"]
        assert rows[op["op"]][:4] == [str(len(keys)), str(buckets[0]), "..", str(buckets[-1])]
        assert rows[op["op"]][4:] == tail
    (last,) = (i for i, line in enumerate(page) if line.startswith(f"{data['workers']} worker"))
    assert page[last].endswith(" of memory each: one layer of each kind")
    assert page[last - 1] == page[last + 1] == target[at - 1] == ""


def test_the_page_of_a_plan_of_nothing_ends_early() -> None:
    idle = warm(*_IDLE)
    assert idle.out.splitlines()[0].startswith("tunes nothing") and "Key: " not in idle.out
