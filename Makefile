PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: setup warm test ghost frozen suite lint sweeps test-base oracle flashinfer-versions vllm-reader compile-only large-registry recipes clean

setup: $(VENV)/.installed

# Python compiles what is imported: pip would compile all of torch and transformers, for a minute.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[runtime,flashinfer,oci,sign,stores,zstd,test]'
	@touch $@

warm: setup
	$(BIN)/sgl-tune warm --tp 8 --dp 8

# Types take half a minute of one core: the suite has the other meanwhile.
test: setup
	$(MAKE) -j2 lint suite

suite: setup
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# All of the sweeps of which the suite takes a third; some minutes more.
sweeps: setup
	SGL_TUNE_WHOLE_SWEEPS=1 $(BIN)/pytest -n 2 --dist loadfile $$(grep -rl tests.sweeps tests --include='test_*.py') tests/book

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The starts that were measured on H200s, on GPUs that are not there; needs no GPU, and an hour of two cores.
ghost: setup
	$(BIN)/python -m tests.ghost.judge $(GHOST)
	$(if $(GHOST),,$(BIN)/python -m tests.ghost.seeds)

# What SGLang's wheels answered to 300 server commands, asked again of the servers that were added; minutes each.
frozen: setup
	$(BIN)/python -m tests.frozen $(FROZEN)

# The base install alone: the file commands must work where torch cannot be imported.
.venv-base/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-base
	.venv-base/bin/pip install -q -c constraints.txt -e '.' pytest hypothesis jsonschema
	@touch $@

test-base: .venv-base/.installed
	! .venv-base/bin/python -c 'import torch' 2>/dev/null
	.venv-base/bin/pytest tests/sgl_tune

# SGLang's own wheels read random command lines and answer random server commands; ours are compared with theirs.
oracle: setup
	$(BIN)/python -m tests.oracle $(ORACLE)

# The rows of runtime/server/flashinfer.py against the packages they were read from; takes a quarter of an hour.
flashinfer-versions: setup
	$(BIN)/python -m tests.stock.flashinfer_versions --work .flashinfer-versions

# FlashInfer's module `norm` by the nvcc that is here, without a GPU; some minutes.
compile-only: setup
	$(BIN)/python -m tests.stock.compile_only --work .compile-only

# vLLM's own code, from its wheel, reads what `sgl-tune export --to vllm` writes; two minutes and 340 MB.
vllm-reader: setup
	$(BIN)/python -m tests.stock.vllm_reader --work .vllm-reader

# A bundle of a gigabyte to Debian's docker-registry and back, killed on both ways; three minutes and 5 GB in /tmp.
large-registry: setup
	$(BIN)/python -m tests.sgl_tune.ship.large_registry --megabytes 1000

# Every command of every recipe, with a real warm, pip, registry and S3; ten minutes, and 3 GB in /tmp.
recipes: setup
	$(BIN)/python -m tests.examples.run_whole

clean:
	rm -rf $(VENV) .flashinfer-versions .vllm-reader .compile-only .venv-base .oracle build *.egg-info
