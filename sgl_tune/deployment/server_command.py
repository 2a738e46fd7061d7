"""A server command as somebody starts it, as far as the runtime core knows its flags.

    SGLANG_CACHE_DIR=/cache python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 4

SGLang takes no positional arguments, so every word up to the next flag is a value of the flag before.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_tune.deployment.container import Container
from sgl_tune.deployment.flag_names import flag_names, flag_types, whole_name, whole_number
from sgl_tune.deployment.launch import Launch
from sgl_tune.deployment.model_files import HUB_ENVIRONMENT
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags
from sgl_tune.deployment.shell_words import EXPANDED, Word
from sgl_tune.errors import UsageError

READ_ENVIRONMENT = ("SGLANG_CACHE_DIR", *HUB_ENVIRONMENT)
# Flags that change neither a key, nor entries, nor memory.
_PLAIN = """
    --host --port --api-key --admin-api-key --served-model-name --trust-remote-code --tokenizer-path
    --tokenizer-mode --tokenizer-worker-num --chat-template --tool-call-parser --reasoning-parser --log-level
    --log-level-http --log-requests --log-requests-level --enable-metrics --show-time-cost --random-seed
    --watchdog-timeout --dist-timeout --download-dir --decode-log-interval --schedule-policy
    --schedule-conservativeness --enable-cache-report --warmups --skip-server-warmup --nccl-port --base-gpu-id
    --stream-interval --grammar-backend --model-loader-extra-config --disaggregation-bootstrap-port
    --disaggregation-ib-device --disaggregation-transfer-backend
"""
_USUAL = ("--device cuda", "--load-format auto", "--load-format safetensors", "--load-format dummy")
_ANYTHING = {*_PLAIN.split(), "--dist-init-addr", "--nccl-init-addr"}
DECISIVE = ("SGLANG_", "SGL_", "FLASHINFER_")  # may change tuned ops and memory
_RANK = "--node-rank"
_SWITCH = re.compile(r"--((enable|disable|skip)-.*|trust-remote-code|log-requests|show-time-cost)")
_VARIABLES = (*DECISIVE, "PYTORCH_", "TORCH_", "NCCL_", "NVSHMEM_")


@dataclass(frozen=True, slots=True)
class ServerCommandLine:
    """The flags of a command. `unfollowed`: not known to the core. `variables`: of libraries, ignored."""

    flags: ServerFlags
    environment: Mapping[str, str]
    unfollowed: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    revision: str | None = None
    notes: tuple[str, ...] = ()


def read_launch(launch: Launch) -> ServerCommandLine:
    given: dict[str, Any] = {}
    unfollowed, revision = [], None
    check_expanded(launch)
    fields = {name: field for name, field in flag_names().items() if field not in TARGET_FIELDS}
    for short, values in _flags(arguments_of(launch)):
        name = short if short in _ANYTHING else whole_name(short, fields)
        field = fields.get(name)
        if field is not None:
            given[field] = _value(field, name, values)
        elif name == "--revision" and values:
            revision = str(values[0])
        elif name not in _ANYTHING and " ".join([name, *values]) not in _USUAL:
            unfollowed.append(name)
    flags, notes = ServerFlags.of(**given), list[str]()
    notes += (f"{_RANK} {word}: node 0 stands for every node" for _, word in _open_ranks(launch.arguments))
    if launch.behind_router:
        flags = _behind_router(flags, notes)
    environment = {name: _variable(name, word) for name, word in launch.environment.items()}
    unread = [name for name in environment if name not in READ_ENVIRONMENT and name.startswith(_VARIABLES)]
    variables = [f"{name}={environment[name]}" for name in unread]
    return ServerCommandLine(
        flags, environment, tuple(dict.fromkeys(unfollowed)), tuple(variables), revision, tuple(notes)
    )


def check_expanded(launch: Launch) -> None:
    """Refuse an unexpanded shell or Kubernetes variable in a value that matters."""
    models: dict[str, None] = {}
    for name, values in _flags(arguments_of(launch)):
        for index, word in enumerate(values):
            left = EXPANDED.search(word)
            what = word.expands or (left[0] if left else "")
            is_switch = _SWITCH.fullmatch(name) or flag_types().get(flag_names().get(name, "")) is bool
            if what and (index or is_switch):
                said = f"{word[:200]} after {name} is not expanded, and may hold any flags"
                raise UsageError(said, "write its flags in its place, or leave it out if it is empty")
            if what and name not in _ANYTHING:
                raise _not_expanded(f"{name} {word[:200]}", what[:200], launch.container)
        models |= dict.fromkeys(values[:1] if name in ("--model-path", "--model") else ())
    if len(models) > 1:
        raise UsageError(f"the server command names {len(models)} models: {', '.join(models)}", "leave one")


def _not_expanded(where: str, what: str, around: Container | None = None) -> UsageError:
    way = f"write its value in its place: {where.replace(what, 'VALUE')}"
    if around and "services" in around.names:  # of a Compose file
        way = f"`docker compose config | sgl-tune ... -f -` fills it in; or {way}"
    unread = f"; not read: {', '.join(around.unread)}" if around and around.unread else ""
    if what.startswith("$(") and what[2] != " ":
        way += f"; or give {what[2:-1]} a value in the container's env"
    return UsageError(f"{where}: {what} is not expanded{unread}", way)


def arguments_of(launch: Launch) -> list[Word]:
    """Return the arguments. `sglang serve MODEL` gets --model-path before its model. A node rank that each
    node sets for itself is 0."""
    words = list(launch.arguments)
    if launch.serve and words and not words[0].startswith("-"):
        words.insert(0, Word("--model-path"))
    for index, word in _open_ranks(words):
        words[index] = Word(f"{_RANK}=0" if "=" in word else "0")
    return words


def _open_ranks(words: Sequence[Word]) -> list[tuple[int, Word]]:
    pairs = enumerate(zip(["", *words], words, strict=False))
    return [
        (at, word) for at, (flag, word) in pairs if word.expands and _RANK in (flag, word.partition("=")[0])
    ]


def _flags(words: Sequence[Word]) -> Iterator[tuple[str, list[Word]]]:
    """Yield each flag with its values: `--flag=value`, or all words up to the next flag."""
    name, values = "", list[Word]()
    for word in words:
        if re.match("-[A-Za-z]", word):
            raise UsageError(f"{word[:80]} is no flag of SGLang", "put flags of sgl-tune before --")
        if not word.startswith("--"):
            if not name:
                raise UsageError(f"the server command begins with {word[:80]}, which is no flag")
            values.append(word)
            continue
        if name:
            yield name, values
        name, equals, value = word.partition("=")
        values = [word.part(value)] if equals else []
    if name:
        yield name, values


def _value(field: str, name: str, values: Sequence[Word]) -> Any:
    kind = flag_types()[field]
    if kind is bool:
        if values:
            raise UsageError(f"{name} takes no value, and {values[0][:80]} follows it")
        return True
    if field == "cuda_graph_bs":
        return [whole_number(name, word) for word in values]
    if kind is list:
        return [str(word) for word in values]
    if len(values) != 1:
        raise UsageError(f"{name} takes one value, and {len(values)} follow it")
    if kind is int:
        return whole_number(name, values[0])
    try:
        return kind(values[0])
    except ValueError:
        raise UsageError(f"{name} {values[0][:80]}: a number is needed") from None


def _variable(name: str, word: Word) -> str:
    left = word.expands or next(iter(EXPANDED.findall(word)), "")
    if left and name in READ_ENVIRONMENT:
        raise _not_expanded(f"{name}={word[:200]}", left[:200])
    return str(word)


def _behind_router(flags: ServerFlags, notes: list[str]) -> ServerFlags:
    if flags.enable_dp_attention:
        raise UsageError(
            "sglang_router.launch_server with --enable-dp-attention is not followed",
            "paste the command of one server: python -m sglang.launch_server ...",
        )
    if (flags.dp or 1) > 1:
        notes.append(f"sglang_router starts {flags.dp} servers of --dp-size 1, which share a cache")
    return flags.changed(dp=None)
