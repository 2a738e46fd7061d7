"""`sgl-tune export`: write a cache of SGLang's for vLLM or for FlashInfer's managed store."""

from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cache.layouts.find import keys, resolve
from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import Ended, UsageError
from sgl_tune.export.result import Exported, Reader, of_store, of_vllm, write_store
from sgl_tune.export.source import read_source, the_one
from sgl_tune.export.vllm import ranks_of, write_vllm
from sgl_tune.units import count

_NOT_READ_BACK = 1


def _vllms(flag: str) -> Any:
    return Option(min=1, help=f"vLLM's {flag}.", metavar="N", show_default="the cache's")


def export(
    target: Annotated[
        str,
        Argument(
            metavar="PATH|KEY",
            help="A cache of SGLang's: its key, its folder, or one file.",
            autocompletion=keys,
        ),
    ],
    to: Annotated[Reader, Option("--to", help="The layout to write.")],
    output: Annotated[
        Path,
        Option(
            "-o",
            "--output",
            metavar="DIR",
            help="flashinfer-store: the server's $FLASHINFER_AUTOTUNE_CACHE_DIR; vllm: the"
            " folder of the cache file that vLLM prints in its log.",
        ),
    ],
    tp: Annotated[int | None, _vllms("--tensor-parallel-size")] = None,
    pp: Annotated[int | None, _vllms("--pipeline-parallel-size")] = None,
    dp: Annotated[int | None, _vllms("--data-parallel-size")] = None,
    replace: Annotated[
        bool, Option("--replace", help="Replace vLLM's files that another environment tuned.")
    ] = False,
    cache_dir: CacheDirOption = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Write a tuned cache where vLLM, or a server that uses FlashInfer's managed store, looks for it.

    No GPU is needed. FlashInfer itself writes a store, so run this where the FlashInfer version that tuned
    the cache is installed. FlashInfer's reader checks the result; a miss is exit code 1. Existing entries
    stay, except those with the same key.

    Example: sgl-tune export 8e60 --to vllm -o ~/.cache/vllm/flashinfer_autotune_cache/0.7.2/90a/HASH
    """
    out = Output(sink(format, quiet))
    if to is not Reader.vllm and (tp or pp or dp or replace):
        raise UsageError("--tp, --pp, --dp and --replace are for --to vllm: a store has no ranks")
    if output.exists() and not output.is_dir():
        raise UsageError(f"-o {output}: not a folder", "name a folder")
    source = read_source(the_one(resolve(target, cache_dir or default_cache_dir()), target))
    if to is Reader.vllm:
        ranks = ranks_of(source, tp, pp, dp)
        if tp not in (None, source.stages[0].tp_ranks):
            out.warn(
                f"the entries are of tp {source.stages[0].tp_ranks}'s shapes: where tp {tp} splits the"
                " experts otherwise, vLLM asks for others and, with a file for each rank, runs them untuned;"
                " export a deployment of that tp"
            )
        exported = of_vllm(source, output, write_vllm(source, ranks, output, replace, out.note))
    else:
        with out.progress("FlashInfer writes its store") as progress:
            exported = of_store(source, write_store(source, output, lambda: progress.advance(0)))
    quiet_lines = [str(path) for path in exported.files] or [str(exported.folder)]
    out.result(exported.to_json(), human=lambda: _show(out, exported), quiet=quiet_lines)
    if not exported.is_good:
        raise Ended(_NOT_READ_BACK)


def _show(out: Output, exported: Exported) -> None:
    entries = count(exported.entries, "entry")
    what = f"{count(len(exported.files), 'file')}, {entries} each" if exported.files else entries
    out.line(f"{what} in {exported.folder}", style="bold")
    same = exported.entries - exported.added - exported.changed
    if exported.files:
        out.line(
            f"for FlashInfer {exported.source.flashinfer} on {exported.source.environment['gpu']}", indent=2
        )
    else:
        out.line(f"{exported.added} new, {exported.changed} changed, {same} there already", indent=2)
    for note in exported.notes:
        out.line(note, indent=2)
    if exported.hits is not None:
        style = "green" if exported.is_good else "red"
        out.line(f"FlashInfer's own reader: {exported.hits} hits of {exported.entries}", style, indent=2)
