"""What people paste, read down to the server's own arguments; what a shell would have replaced is refused."""

import pytest

from sgl_tune.asking.question import question_of
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.server_command import read_launch
from sgl_tune.deployment.shell_words import shell_commands
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.by_core import CoreStarter
from sgl_tune.memory.options import MemoryOptions
from tests.sgl_tune.asking.test_kept import SERVER as SOME_SERVER
from tests.sgl_tune.planning import TARGET, plan, warm
from tests.sgl_tune.running import ROOT, run_here

SERVER = "python3 -m sglang.launch_server"
IMAGE = "lmsysorg/sglang:v0.5.23-cu129"
POD = f"""
# as it is deployed
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: server
    image: {IMAGE}
    command: [python3, -m, sglang.launch_server]
    args: ["--model-path", "$(MODEL)", "--tp=2"]
    env:
    - {{name: NAME, value: m}}
    - {{name: MODEL, value: /models/$(NAME)}}
    - {{name: TOKEN, valueFrom: {{secretKeyRef: {{name: t, key: k}}}}}}
    volumeMounts: [{{name: weights, mountPath: /models}}]
  - name: proxy
    image: nginx
    command: [nginx]
  volumes: [{{name: weights, hostPath: {{path: /data/models}}}}]
"""
COMPOSE = """services:
  sglang:
    image: lmsysorg/sglang:latest
    entrypoint: python3 -m sglang.launch_server
    command: >
      --model-path m
      --tp=2
    environment: {HF_TOKEN: x}
    volumes: ["/data:/models"]
"""


@pytest.mark.parametrize(
    "text",
    [
        f"A=1 B='2 3' {SERVER} --model-path m --tp=2",
        f"export A=1 && cd /srv && {SERVER} --model-path m --tp=2",
        "nohup python3 -u -m sglang.launch_server --model-path m --tp=2 > log.txt 2>&1 &",
        f"{SERVER} \\\n  --model-path m \\\n  --tp=2  # two GPUs\n",
        f"{SERVER} --model-path m --tp=2 2>&1 | tee log",
        f'bash -c "{SERVER} --model-path m --tp=2"',
        f"srun -N 2 bash -lc 'A=1 {SERVER} --model-path m --tp=2'",
        f"uv run --with x {SERVER} --model-path m --tp=2",
        f"$ {SERVER} --model-path m --tp=2",
        f"cat >x <<-'EOF'\nA 'b\nEOF\nr < <(f(g(h))) <<<x\n{SERVER} --model-path m --tp=2 > >(tee z)\n",
        f"{SERVER} --model-path m --tp=2\ncurl x -o >(jq -r '.a' | base64 -d >y) -H 'A: b' \\\n -d '{{}}'",
        f"sudo docker run --rm -p30000:30000 {IMAGE} sh -c 'exec {SERVER} --model-path m --tp=2'",
        "uv run -m sglang.launch_server --model-path m --tp=2",
        f"docker run --gpus all -it --rm --shm-size 32g --ipc=host {IMAGE} {SERVER} --model-path m --tp=2",
        f"podman run --gpus '\"device=0,1\"' -eA=1 {IMAGE} bash -c '{SERVER} --model-path m --tp=2'",
        f"docker run --entrypoint python3 {IMAGE} -m sglang.launch_server --model-path m --tp=2",
        f"docker exec -it box {SERVER} --model-path m --tp=2",
        f"kubectl run box --image={IMAGE} --env=A=1 -- {SERVER} --model-path m --tp=2",
        "python3 /srv/sglang/launch_server.py --model-path m --tp=2",
        COMPOSE,
        f"cat <<'EOF' | kubectl apply -f -\n{POD.replace('$(MODEL)', 'm')}EOF\nkubectl get pods\n",
        f"M=m\nkubectl apply -f - <<E\n{POD.replace('$(MODEL)', '${M}')}E\n",
        "docker compose -f - up <<-X\n\t" + COMPOSE.replace("\n", "\n\t") + "X\n",
        "command: [python3, -m, sglang.launch_server]\nargs: [--model-path, m, --tp=2]\n",
    ],
)
def test_what_is_pasted_is_read_down_to_the_servers_arguments(text: str) -> None:
    assert list(launch_of([text]).arguments) == ["--model-path", "m", "--tp=2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{SERVER} --model-path $MODEL", r"\$MODEL is not expanded"),
        (f'{SERVER} --model-path "${{HOME}}/m"', r"\$\{HOME\} is not expanded"),
        (f"{SERVER} --model-path ~/m --tp `nproc`", "~/m is not expanded"),
        (f"{SERVER} --model-path m --cuda-graph-bs {{1,2}}", "is not expanded"),
        (f"SGLANG_CACHE_DIR=$HOME/c {SERVER} --model-path m", r"\$HOME is not expanded"),
        (f"docker run -e SGLANG_CACHE_DIR {IMAGE} {SERVER} --model m", "SGLANG_CACHE_DIR is not expanded"),
        (f"{SERVER} --model-path <your model>", "<your model> is not expanded"),
        (f"{SERVER} --model-path '$MODEL'", r"\$MODEL is not expanded"),
        (
            f"{SERVER} --model-path m --tp 2 $MORE",
            r"\$MORE after --tp is not expanded, and may hold any flags",
        ),
        (f"{SERVER} --model-path m --port 1 ${{A:-}}", r"\$\{A:-\} after --port is not"),
        (f'{SERVER} --model-path m --trust-remote-code "$@"', r"\$@ after --trust-remote-code is not"),
        (f"bash <<EOF\n{SERVER} --model-path m\nEOF\n", "reads a document"),
        (f"kubectl apply -f - <<EOF\n{POD}EOF\n", r"\$\( MODEL\) is not expanded"),
        (f"kubectl apply -f - <<'EOF'\n{POD.replace('$(MODEL)', '$MODEL')}EOF\n", r"\$MODEL is not expanded"),
        (POD.replace("TOKEN, valueFrom", "SGLANG_CACHE_DIR, value: $HOME, x"), r"\$HOME is not expanded"),
        (f"{SERVER} --model a & {SERVER} --model b", "starts 2 servers"),
        ("env " * 5000 + SERVER, "stands in too many others"),
        ("bash start.sh", "a script is not read"),
        ("python -m sglang.bench_one_batch --model m", "it measures batches"),
        (f"docker run {IMAGE} --model-path m", "a flag of the image's own program"),
        (f"docker run {IMAGE}", "no command follows the image"),
        ("kind: Service\nspec: {}\n", "the manifest after -- holds no command"),
        ("command: [python3, -m, sglang.launch_server\n", "is not YAML"),
        (f"{POD}---\nmodel: {{args: [--tp, '4']}}\n", "adds --tp 4 to another object's command"),
        (POD.replace("MODEL, value", "OTHER, value"), r"\$\(MODEL\) is not expanded"),
        (COMPOSE.replace("command: >", "x: >").replace("launch_server\n", "bench_serving\n"), "asks"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_launch(launch_of([text]))


@pytest.mark.parametrize("rank", ["$POD_INDEX", "${HOSTNAME##*-}", "=$RANK", "$(LWS_WORKER_INDEX)"])
def test_a_rank_that_each_node_sets_for_itself_is_that_of_any_node(rank: str) -> None:
    command = f"{SERVER} --model-path m --nnodes 2 --node-rank{'' if rank[0] == '=' else ' '}{rank} --tp 2"
    line = read_launch(launch_of([command]))
    assert line.flags.more["node_rank"] == 0 and "node 0 stands for every node" in line.notes[0]
    asked = question_of(SOME_SERVER, ServerFlags.of(gpu="h200"), [command])
    assert "--node-rank 0" in " ".join(asked.argv).replace("=", " ")


def test_quotes_and_continuations_are_the_shells() -> None:
    text = 'a \'b c\' "d \\"e\\" f" g\\ h \\\r\n i#j k=2>x 3>>y # z'
    assert shell_commands(text) == [["a", "b c", 'd "e" f', "g h", "i#j", "k=2"]]


def test_a_pods_container_says_image_model_and_mount() -> None:
    launch = launch_of([POD])
    assert launch.container is not None and launch.container.release == "0.5.23"
    assert list(launch.arguments) == ["--model-path", "/models/m", "--tp=2"]
    assert launch.container.outside("/models/m") == "/data/models/m"


SELECTOR = "spec:\n  nodeSelector: {nvidia.com/gpu.product: %s}\n"
AFFINITY = """spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [%s]}]}]}}}
"""


@pytest.mark.parametrize("where", [SELECTOR, AFFINITY])
def test_the_product_that_a_pod_asks_its_node_for_is_its_gpu(where: str) -> None:
    pod = POD.replace("spec:\n", where % "NVIDIA-B200").replace("/models/$(NAME)", "DeepSeek-V3")
    data = plan("--", pod)
    assert "sm100" in data["files"][0] and any("gpu.product says so" in note for note in data["notes"])
    for named in (("--gpu", "h200"), ("--target", ROOT / "cache-examples" / "h200.env.json")):
        ran = warm("--server", "0.5.23", *named, "--", pod)
        assert ran.code == 2 and "the manifest's nvidia.com/gpu.product is NVIDIA-B200" in ran.err
    assert CoreStarter(MemoryOptions(ByServer(ServerFlags(), (pod,)))).gpu.gpu.name == "B200"
    for product, said in (("NVIDIA-H200-MIG-1g", "a slice of a GPU"), ("Tesla-T4", "named 'Tesla-T4'")):
        for command in (("warm", "--dry-run"), ("warm", "--dry-run", "--gpu", "h200"), ("mem-report",)):
            assert run_here(*command, *TARGET, "--", pod.replace("NVIDIA-B200", product)).ends(2, said)
    asked = question_of(SOME_SERVER, ServerFlags(), [pod])
    assert asked.gpu.name == "NVIDIA B200"


@pytest.mark.parametrize(
    ("image", "release"),
    [
        (IMAGE, "0.5.23"),
        ("mirror.example/lmsysorg/sglang:v0.5.23.post1-cu130-runtime", "0.5.23.post1"),
        ("lmsysorg/sglang:0.5.23@sha256:aa", "0.5.23"),
        ("registry:5000/sglang", None),
        ("registry.corp/ml/my-sglang:1.4.2", None),
        ("corp/sglang:1.4.2", None),
        ("corp/sglang:v0.5.23-patched", "0.5.23"),
        ("lmsysorg/sglang:latest", None),
        ("vllm/vllm-openai:v0.5.23", None),
    ],
)
def test_an_images_tag_names_the_release_where_it_does(image: str, release: str | None) -> None:
    launch = launch_of([f"docker run {image} {SERVER} --model-path m"])
    assert launch.container is not None and launch.container.release == release


def test_the_router_starts_servers_of_one_data_parallel_rank() -> None:
    router = "python3 -m sglang_router.launch_server --model-path m --router-policy rr --dp-size 4 --tp 2"
    line = read_launch(launch_of([router]))
    assert (line.flags.dp, line.flags.tp) == (None, 2)
    assert any("4 servers" in note for note in line.notes)
    with pytest.raises(UsageError, match="is not followed"):
        read_launch(launch_of([f"{router} --enable-dp-attention"]))


def test_a_container_is_planned_for_its_images_release_and_its_mounts() -> None:
    run = f"docker run -v /data/cache:/root/.cache {IMAGE} {SERVER} --model-path Qwen/Qwen3-30B-A3B"
    data = plan("--gpu", "sm90", "--", run)
    assert data["deployment"]["sglang_version"] == "0.5.23" and data["cache_dir"] == "/data/cache/sglang"
    assert f"SGLang 0.5.23: the image {IMAGE} says so" in data["notes"]
    other = warm("--gpu", "sm90", "--server", "0.5.23", "--", run.replace("v0.5.23", "v0.5.22"))
    assert other.code == 0 and "SGLang 0.5.23 is asked, and the image lmsysorg/sglang:v0.5.22" in other.err
    run, told = run.replace("v0.5.23", "latest"), "names no release of SGLang"
    assert told in " ".join(plan("--gpu", "sm90", "--", run)["notes"])
    assert told not in " ".join(plan(*TARGET, "--server", "0.5.23", "--", run)["notes"])


def test_a_container_without_a_mount_for_its_caches_is_warned_of() -> None:
    command = f"docker run a/b {SERVER} --model-path Qwen/Qwen3-30B-A3B"
    told = "the server's cache folder /root/.cache/sglang is in no mount"
    for cache_dir, tunes in (((), True), (("--cache-dir", "/data"), True), ((), False)):
        ran = warm(*TARGET, *cache_dir, "--", command + " --moe-runner-backend flashinfer_cutlass" * tunes)
        assert ran.code == 0 and (told in ran.err) == (not cache_dir and tunes)


@pytest.mark.parametrize("value", ["$PORT", "${PORT}", "<port>", "`free-port`"])
def test_a_value_that_makes_no_difference_may_be_left_to_the_shell(value: str) -> None:
    start = f"{SERVER} --model m --host $IP --port {value} --log-level=$LEVEL \\"
    line = read_launch(launch_of([start]))
    assert line.flags.model_path == "m" and line.unfollowed == ()
    with pytest.raises(UsageError, match="is not expanded"):
        read_launch(launch_of([f"{SERVER} --model m --tp {value}"]))


def test_an_image_with_a_program_of_its_own_is_taken_to_start_the_server() -> None:
    launch = launch_of(["docker run -e HF_TOKEN=<token> example.org/sglang:server-cuda --model-path m"])
    assert list(launch.arguments) == ["--model-path", "m"]
    assert launch.container is not None and "is taken to start" in launch.container.assumed[0]
