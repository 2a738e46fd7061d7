PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: setup warm test ghost frozen suite lint test-base flashinfer-versions vllm-reader clean

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

# The rows of runtime/server/flashinfer.py against the packages they were read from; takes a quarter of an hour.
flashinfer-versions: setup
	$(BIN)/python -m tests.stock.flashinfer_versions --work .flashinfer-versions

# vLLM's own code, from its wheel, reads what `sgl-tune export --to vllm` writes; two minutes and 340 MB.
vllm-reader: setup
	$(BIN)/python -m tests.stock.vllm_reader --work .vllm-reader

clean:
	rm -rf $(VENV) .flashinfer-versions .vllm-reader .venv-base build *.egg-info
