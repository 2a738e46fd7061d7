"""Finding caches: every layout, from every place a user may point at."""

import os
from pathlib import Path

import pytest

from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import find_caches, resolve
from sgl_tune.cache.rank_names import RankName, VllmRank, names_text
from sgl_tune.errors import UsageError, WorkFailed
from tests.sgl_tune.cache.children import as_nobody

KEY = "8e60e63bda689ee5"


def _make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return root


def _sglang(version: str = "0.7.2", key: str = KEY, ranks: int = 2) -> list[str]:
    return [f"flashinfer/autotune/{version}/sm90/{key}/rank_tp{r}_pp0_dp{r}.json" for r in range(ranks)]


def _only(root: Path) -> Cache:
    (cache,) = find_caches(root)
    return cache


@pytest.mark.parametrize(
    ("filename", "rank"),
    [
        ("rank_tp0_pp0_dp0.json", RankName(0, 0, 0)),
        ("rank_tp11_pp1_dp3.json", RankName(11, 1, 3)),
        ("rank_tp0_pp0_dp0_gpu6f-1A.json", RankName(0, 0, 0, "6f-1A")),
        ("rank_tp0_pp0_dp0.json.broken", None),
        ("rank_tp0_pp0_dp0_gpu../x.json", None),
        ("rank_tp0_pp0.json", None),
        ("rank_tp-1_pp0_dp0.json", None),
        ("xrank_tp0_pp0_dp0.json", None),
    ],
)
def test_rank_names_are_read_and_written_back(filename: str, rank: RankName | None) -> None:
    assert RankName.parse(filename) == rank
    assert rank is None or rank.filename == filename


@pytest.mark.parametrize(
    "below", ["", "flashinfer", "flashinfer/autotune/0.7.2", "flashinfer/autotune/0.7.2/sm90"]
)
def test_a_cache_of_sglang_is_found_from_any_folder_above_it(tmp_path: Path, below: str) -> None:
    folder = f"flashinfer/autotune/0.7.2/sm90/{KEY}"
    _make(
        tmp_path,
        *_sglang(ranks=12),
        f"{folder}/sgl-tune.json",
        f"{folder}/.autotuner_x.tmp",
        f"{folder}/.sgl-tune.journal",
        f"{folder}/.sgl-tune.lock",
        f"{folder}/rank_tp0_pp0_dp0.json.broken",
        f"{folder}/runs/rank_tp0_pp0_dp0.20260101_000000.ab.json",
        f"{folder}/runs/.autotuner_y.tmp",
        "huggingface/hub/config.json",
    )
    cache = _only(tmp_path / below)
    assert (cache.layout, cache.flashinfer, cache.arch, cache.key) == ("sglang", "0.7.2", "sm90", KEY)
    assert [file.rank.tp for file in cache.files if file.rank] == list(range(12)), "in the order of the ranks"
    _make(tmp_path, f"{folder}/rank_tp0_pp0_dp0_gpu6f.json")
    assert [file.rank for file in _only(tmp_path).files][:2] == [RankName(0, 0, 0), RankName(0, 0, 0, "6f")]
    left = [path.name for path in cache.leftovers]
    assert left == [".autotuner_x.tmp", ".sgl-tune.journal", ".autotuner_y.tmp"]
    assert len(cache.runs) == 1 and cache.manifest == cache.path / "sgl-tune.json"


def test_a_file_brings_its_cache_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, *_sglang())
    file = tmp_path / _sglang()[1]
    cache = _only(file)
    assert [f.path for f in cache.files] == [file] and cache.key == KEY
    monkeypatch.chdir(file.parent)
    here = _only(Path("rank_tp1_pp0_dp1.json"))
    assert (here.key, here.arch, here.flashinfer) == (KEY, "sm90", "0.7.2")
    assert _only(Path()).key == KEY


def test_a_cache_of_vllm_is_found_with_and_without_its_default_folders(tmp_path: Path) -> None:
    digest = "ab" * 32
    _make(tmp_path, f"flashinfer_autotune_cache/0.6.12/90a/{digest}/autotune_configs.json")
    cache = _only(tmp_path)
    assert (cache.layout, cache.flashinfer, cache.arch, cache.key) == ("vllm", "0.6.12", "90a", digest)
    _make(tmp_path / "mine", f"{digest}/autotune_configs.json")
    cache = _only(tmp_path / "mine")
    assert (cache.layout, cache.flashinfer, cache.key) == ("vllm", None, digest)


def test_a_cache_of_vllm_with_one_file_per_rank_is_found(tmp_path: Path) -> None:
    folder = f"flashinfer_autotune_cache/0.7.2/90a/{'ab' * 32}"
    ranks = [(0, 0), (0, 2), (1, 10)]
    others = (
        "autotune_configs.json",
        "autotune_configs_dp0_rank01.json",
        "autotune_configs_dp0_rank1.json.bak",
    )
    _make(tmp_path, *(f"{folder}/autotune_configs_dp{dp}_rank{rank}.json" for dp, rank in ranks))
    _make(tmp_path, *(f"{folder}/{name}" for name in others), f"{folder}/.autotuner_x.tmp")
    for place in ("", folder):
        cache = _only(tmp_path / place)
        names = [file.path.name for file in cache.files]
        assert (cache.layout, cache.flashinfer, cache.arch) == ("vllm", "0.7.2", "90a")
        assert [VllmRank.parse(name) for name in names] == [*(VllmRank(*rank) for rank in ranks), None]
        assert names_text(names[:-1]) == "rank0,2,10 dp0-1" and names_text(names) == ""
    assert len(_only(tmp_path).leftovers) == 1
    file = tmp_path / folder / "autotune_configs_dp1_rank10.json"
    assert [one.path for one in _only(file).files] == [file]


def test_a_folder_of_sglangs_shape_that_vllm_fills_is_vllms(tmp_path: Path) -> None:
    _make(tmp_path, f"0.7.2/sm90/{KEY}/autotune_configs_dp0_rank0.json")
    assert _only(tmp_path).layout == "vllm"


def test_flashinfers_managed_store_is_found_from_any_folder(tmp_path: Path) -> None:
    store = "autotune/v2/0123456789abcdef"
    _make(
        tmp_path, f"{store}/entries/aa.json", f"{store}/entries/bb.json", f"{store}/entries/.autotune_x.tmp"
    )
    (tmp_path / store / "manifest.json").write_text('{"flashinfer_version": "0.7.2", "gpu": "NVIDIA H200"}')
    for place in ("", "autotune", "autotune/v2", store, f"{store}/entries/aa.json"):
        cache = _only(tmp_path / place)
        assert (cache.layout, cache.flashinfer, cache.arch) == ("flashinfer-v2", "0.7.2", "NVIDIA H200")
        assert cache.key == "0123456789abcdef"
    assert len(_only(tmp_path).files) == 2 and len(_only(tmp_path).leftovers) == 1
    for manifest in ("", "[]", '{"flashinfer_version": 7}', "[" * 100_000):
        (tmp_path / store / "manifest.json").write_text(manifest)
        assert _only(tmp_path).flashinfer is None


def test_groups_are_what_a_server_compares(tmp_path: Path) -> None:
    def groups(*ranks: tuple[int, int, int] | tuple[int, int, int, str]) -> list[list[str]]:
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / KEY
        _make(folder, *(RankName(*rank).filename for rank in ranks))
        return [[str(file.rank) for file in group] for group in _only(folder).groups()]

    assert groups((0, 0, 0), (1, 0, 1)) == [["tp0_pp0_dp0", "tp1_pp0_dp1"]]
    assert groups((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)) == [
        ["tp0_pp0_dp0", "tp1_pp0_dp0"],
        ["tp0_pp1_dp0", "tp1_pp1_dp0"],
    ]
    assert groups((0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1)) == [
        ["tp0_pp0_dp0", "tp1_pp0_dp0"],
        ["tp0_pp0_dp1", "tp1_pp0_dp1"],
    ]
    assert groups((0, 0, 0, "A"), (0, 0, 1, "B")) == [["tp0_pp0_dp0_gpuA", "tp0_pp0_dp1_gpuB"]]


def test_a_key_may_be_shortened(tmp_path: Path) -> None:
    _make(tmp_path, *_sglang(), *_sglang(version="0.7.1"), *_sglang(key="0" * 16))
    assert {cache.flashinfer for cache in resolve(KEY[:6], tmp_path)} == {"0.7.2", "0.7.1"}
    assert len(resolve(None, tmp_path)) == 3
    for target in ("ffff", "not/there", KEY[:3]):
        with pytest.raises(UsageError, match=r"no such file or folder, and (no key|too short)"):
            resolve(target, tmp_path)
    with pytest.raises(UsageError, match="no cache directory yet"):
        resolve(None, tmp_path / "none")


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    _make(tmp_path / "a", *_sglang())
    (tmp_path / "a" / "flashinfer" / "autotune" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert _only(tmp_path / "a").key == KEY
    assert _only(tmp_path / "link").key == KEY, "but what the user names is"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_an_unreadable_folder_is_an_error_or_a_warning(tmp_path: Path) -> None:
    _make(tmp_path, *_sglang())
    closed = tmp_path / "flashinfer" / "autotune" / "0.7.2" / "sm100"
    closed.mkdir(mode=0o700)

    def find() -> tuple[int, list[str]]:
        seen: list[str] = []
        found = find_caches(tmp_path, on_error=lambda error: seen.append(str(error.filename)))
        try:
            find_caches(tmp_path)
        except WorkFailed as error:
            seen.append(error.message)
        return len(found), seen

    assert as_nobody(tmp_path, find) == (1, [str(closed), f"{closed}: Permission denied"])
