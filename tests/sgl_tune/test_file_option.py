"""`-f`: what starts the server, in a file, and which part of it is meant."""

from pathlib import Path

import pytest

from sgl_tune.cli.app import check_words
from sgl_tune.deployment.container import Mount
from sgl_tune.deployment.file_option import started_by
from sgl_tune.deployment.launch import Launch, launch_of
from sgl_tune.deployment.server_command import read_launch
from sgl_tune.errors import UsageError

COMPOSE = """services:
  sglang:
    image: lmsysorg/sglang:v0.5.23
    entrypoint: python3 -m sglang.launch_server
    command: --model-path /models/m --tp 2 --served-model-name "it's m"
    volumes: ["./cache:/cache", "../models:/models", "/data:/data", "kept:/kept", /lost, "${HOME}/.c:/c"]
"""


def _of(path: Path | str) -> Launch:
    return launch_of(started_by(str(path), None)[0])


def test_a_compose_files_folders_count_from_its_own(tmp_path: Path) -> None:
    file = tmp_path / "m" / "compose.yaml"
    file.parent.mkdir()
    file.write_text(COMPOSE)
    read, pasted = _of(file).container, launch_of([COMPOSE]).container
    assert read is not None and pasted is not None
    assert read.outside("/cache/x") == f"{tmp_path}/m/cache/x"
    assert read.outside("/models") == f"{tmp_path}/models" and read.outside("/c") == str(Path.home() / ".c")
    kept, lost = read.elsewhere("/kept/x"), read.elsewhere("/lost")
    assert kept == Mount(None, "/kept", "on volume kept") and lost and lost.starts_empty
    assert [pasted.outside(at) for at in ("/cache", "/models", "/data")] == ["cache", "../models", "/data"]


def test_a_message_names_the_file_and_what_may_stand_there(tmp_path: Path) -> None:
    file = tmp_path / "start.yaml"
    with pytest.raises(UsageError) as missing:
        started_by(str(file), None)
    assert "standard input" in (missing.value.remedy or "")
    file.write_text("kind: Service\nspec: {}\n")
    with pytest.raises(UsageError, match=f"the manifest in {file} holds no command"):
        _of(file)


GROUP = """kind: LeaderWorkerSet
metadata: {name: glm}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {spec: {containers: [POD]}}
    workerTemplate: {spec: {containers: [POD]}}
"""
IN_POD = """{name: sglang, env: [{name: NODES, value: $(LWS_GROUP_SIZE)}], command: [sh, -c, "python3 -m
  sglang.launch_server --model-path m --nnodes $(NODES) --node-rank $(LWS_WORKER_INDEX)
  --dist-init-addr $(LWS_LEADER_ADDRESS):20000"]}"""


@pytest.mark.parametrize("leader", ["    leaderTemplate: {spec: {containers: [POD]}}\n", ""])
def test_a_group_of_pods_is_one_server_of_so_many_nodes(leader: str) -> None:
    text = GROUP.replace("    leaderTemplate: {spec: {containers: [POD]}}\n", leader).replace("POD", IN_POD)
    words = list(launch_of([text]).arguments)
    assert words == [
        *("--model-path", "m", "--nnodes", "2", "--node-rank", "0"),
        *("--dist-init-addr", "glm-0.glm:20000"),
    ]


def test_a_name_picks_among_a_manifests_servers(tmp_path: Path) -> None:
    pod = "kind: Pod\nmetadata: {name: %s}\nspec: {containers: [%s]}\n"
    one = "{name: a, command: [python3, -m, sglang.launch_server], args: [--model-path, %s]}"
    file = tmp_path / "pods.yaml"
    file.write_text("---\n".join([pod % ("x", one % "m"), pod % ("y", one % "n")]))
    for name, model in (("x", "m"), ("y", "n")):
        assert list(_of(f"{file}:{name}").arguments) == ["--model-path", model]
    for name, said in ((":z", "has no server 'z'"), (":a", "starts 2 servers in 'a'"), ("", "2 servers")):
        with pytest.raises(UsageError, match=said) as refused:
            _of(f"{file}{name}")
        assert f"-f {file}:NAME with one of x, y" in (refused.value.remedy or "")
    file.write_text("python3 -m sglang.launch_server --model-path m")
    with pytest.raises(UsageError, match="a script, which has no names"):
        _of(f"{file}:x")


ROLE = """  - name: %s
    leaderWorkerPattern: {size: 2, template: {spec: {containers: [{name: sglang, command: [python3, -m,
      sglang.launch_server, --model-path, %s, --node-rank, $(RBG_LWP_WORKER_INDEX)]}]}}}
"""
ROLES = (
    "kind: RoleBasedGroup\nmetadata: {name: pd}\nspec:\n  roles:\n" + ROLE % ("in", "m") + ROLE % ("out", "n")
)
RUNNER = "{name: s, command: [python3, -m, sglang.launch_server, --model-path, %s]}"
HALVES = "".join(
    f"  {half}: {{leader: {{runner: {RUNNER % model}}}, worker: {{runner: {RUNNER % model}}}}}\n"
    for half, model in (("engine", "m"), ("decoder", "n"))
)
PODS = "---\n".join(f"kind: Pod\nspec: {{containers: [{RUNNER % model}]}}\n" for model in "mn")


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [(ROLES, "in", "out"), (f"spec:\n{HALVES}", "engine", "decoder"), (PODS, "1", "2")],
    ids=["roles", "keys", "numbers"],
)
def test_each_server_of_a_manifest_has_a_name(tmp_path: Path, text: str, first: str, second: str) -> None:
    file = tmp_path / "pd.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match="starts 2 servers") as refused:
        _of(file)
    assert (refused.value.remedy or "").endswith(f"-f {file}:NAME with one of {first}, {second}")
    assert [_of(f"{file}:{name}").arguments[1] for name in (first, second)] == ["m", "n"]


def test_a_compose_files_own_default_is_used_and_told() -> None:
    text = COMPOSE.replace("--tp 2", "--tp ${TP:-4} --ep ${EP-2} --host $${IP:-x}")
    launch = launch_of([text])
    assert list(launch.arguments)[2:6] == ["--tp", "4", "--ep", "2"] and launch.container is not None
    assert launch.container.assumed[0] == "${TP:-4} is 4, the default in the manifest"
    assert len(launch.container.assumed) == 2
    with pytest.raises(UsageError, match=r"\$\{TP:-4\} is not expanded"):
        read_launch(launch_of(["python -m sglang.launch_server --model-path m --tp ${TP:-4}"]))


def test_a_value_that_stands_elsewhere_has_a_way_in() -> None:
    start = "python3 -m sglang.launch_server --model-path $MODEL --tp ${TP}"
    script = f"#!/bin/sh\nMODEL=org/m  # ours\nexport TP=4\nHERE=$(pwd)\n{start}\n"
    assert list(launch_of([script]).arguments) == ["--model-path", "org/m", "--tp", "4"]
    for more in ("TP=8\n", "[ -n $BIG ] && TP=8\n", ". ./env.sh\n", "read MODEL\n"):
        with pytest.raises(UsageError, match="is not expanded"):
            read_launch(launch_of([script.replace("HERE=", f"{more}HERE=")]))
    branch = script.replace("MODEL=", "if true; then\nMODEL=").replace("export", "fi\nexport")
    for text in (branch, f"{start}\nMODEL=org/m\nTP=4\n"):
        with pytest.raises(UsageError, match=r"\$MODEL is not expanded"):
            read_launch(launch_of([text]))
    with pytest.raises(UsageError, match=r"\$\{TP\} is not expanded") as compose:
        read_launch(launch_of([COMPOSE.replace("--tp 2", "--tp ${TP}")]))
    assert (compose.value.remedy or "").startswith("`docker compose config | sgl-tune ... -f -` fills it in")
    pod = "containers:\n- name: s\n  command: [python3, -m, sglang.launch_server, --model-path, $(MODEL)]\n"
    with pytest.raises(UsageError, match="not read: envFrom settings") as pods:
        read_launch(launch_of([f"{pod}  envFrom: [{{configMapRef: {{name: settings}}}}]\n"]))
    assert "compose" not in (pods.value.remedy or "")
    with pytest.raises(UsageError, match="is a template") as helm:
        launch_of([pod.replace("$(MODEL)", '"{{ .Values.model }}"')])
    assert "helm template" in (helm.value.remedy or "")


def test_two_models_are_refused_wherever_they_stand() -> None:
    with pytest.raises(UsageError, match="names 2 models: m, n"):
        read_launch(launch_of(["python -m sglang.launch_server --model-path m --model n"]))
    with pytest.raises(UsageError, match="2 models are named: m, n"):
        check_words(["warm", "--model-path=m", "--model", "n", "--", "python"])
    with pytest.raises(UsageError, match=r"2 files are named: a\.yaml, b\.toml"):
        check_words(["warm", "-f", "a.yaml", "--file=b.toml"])
    check_words(["warm", "--model-path=m", "--model", "m", "--", "python", "--model", "n"])
