# Everything a developer or the CI does. `make help` lists the targets; each does only what has changed.

VENV ?= .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest
PYTEST_ARGS ?=
FUZZ_S ?= 60
C_FILES = $(wildcard shim/*/*.[ch] pytorch/vgpu_torch/core/*.cc pytorch/vgpu_torch/core/*.h deploy/packaging/*.c \
  daemon/bench/*.c daemon/executor/*.[ch] daemon/vgpusim/device/*.[ch] protocol/c/*.[ch] tests/*/*.[ch] \
  tests/shim/*/*.[ch] tests/programs/*.cu)
GEN_INPUTS = $(shell find protocol -name '*.py' -o -name '*.lock' -o -name '*.tsv' -o -name '*.txt' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup gen shim executor build test test-fast test-gpu test-ecosystem check check-types check-format fix \
  clang sanitize-short demo bench packages package-host bundle asan tsan fuzz fuzz-records fuzz-threads fuzz-floor \
  worker-lines faults chaos soak api clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: $(VENV)/.stamp ## make .venv with everything that building and testing need

$(VENV)/.stamp: pyproject.toml setup.py deploy/make-venv
	@deploy/make-venv $(VENV)
	@touch $@

gen: build/gen/.stamp ## run the generator: protocol/spec to build/gen and the packages' _gen

build/gen/.stamp: $(GEN_INPUTS) | $(VENV)/.stamp
	@$(PY) -m protocol.gen
	@touch $@

shim: build/gen/.stamp ## compile the guest libraries
	@$(PY) shim/build.py
	@$(PY) shim/build_cudart.py
	@$(PY) shim/build_compiler.py
	@$(PY) shim/build_cupti.py
	@$(PY) daemon/bench/build.py
	@$(PY) shim/build_notice.py
	@$(PY) pytorch/build.py

executor: build/gen/.stamp ## compile the executor and the simulator's C half
	@$(PY) daemon/executor/build_ffi.py

build: shim executor ## all of the above

# Two processes share the folders out, as most tests keep less than one processor busy. A virtual machine is slow enough
# alone: tests/vm have the machine for themselves.
# tests/fuzz/test_in_process.py compiles the executor with sanitizers: a part of sanitize-short.
test: build ## all tests but those that need a GPU, and the sanitizers'
	$(PYTEST) -n 2 --no-loadscope-reorder --ignore tests/vm --ignore tests/fuzz/test_in_process.py $(PYTEST_ARGS)
	$(PYTEST) tests/vm $(PYTEST_ARGS)

test-fast: build ## the tests that need no program from PyPI
	$(PYTEST) -m 'not gpu and not client and not ecosystem' $(PYTEST_ARGS)

test-gpu: build ## the tests that need a real GPU
	$(PYTEST) -m gpu $(PYTEST_ARGS)

test-ecosystem: build ## what takes hours: torch's whole table of operators, and programs around it
	$(PYTEST) -p tests.ecosystem.recorder -m ecosystem $(PYTEST_ARGS)

check: build ## linters, types, formats, layout, the built library's symbols
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(PY) -m mypy
	$(MAKE) -s check-types
	$(MAKE) -s check-format
	$(PY) -m protocol.gen --reference build/api.md
	@diff -q build/api.md docs/api.md || { echo 'docs/api.md is not what the description says: run `make api`'; false; }
	$(PY) tests/house/tidy.py
	$(PYTEST) -q tests/house

# Several scripts are called build.py, so each is looked at alone, with a cache of its own.
check-types: build/gen/.stamp ## the types of build scripts (strict) and tests
	@for script in "shim/native.py shim/build.py shim/build_cudart.py shim/build_compiler.py shim/build_cupti.py \
	  shim/build_notice.py" \
	  daemon/executor/build_ffi.py \
	  daemon/bench/build.py pytorch/build.py setup.py; do \
	  echo "mypy $$script"; \
	  cache=.mypy_cache/scripts-$$(echo $$script | cksum | cut -d' ' -f1); \
	  MYPYPATH=shim:daemon:guest $(PY) -m mypy --cache-dir $$cache $$script || exit 1; \
	done
	$(PY) -m mypy --config-file tests/mypy.ini

check-format: $(VENV)/.stamp ## the C files' format alone
	@echo clang-format; $(VENV)/bin/clang-format --dry-run -Werror $(C_FILES)

fix: $(VENV)/.stamp ## format, and mend what the linters can
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format
	$(VENV)/bin/clang-format -i $(C_FILES)

demo: build ## an unmodified CUDA program from PyPI on a simulated GPU
	@$(PY) tests/clients/demo.py

bench: build ## driver calls over each channel, then the simulator's kernels against C loops, PyTorch against the CPU (not a test; a card: vgpu bench)
	@$(VENV)/bin/vgpu bench --simulator h100
	@$(PY) tests/bench/kernels.py
	@$(PY) tests/bench/torch_ratios.py

packages: build ## what guests install: vgpu-guest as a .deb and as a .tar.gz, into build/packages
	@$(PY) -m deploy.packaging guest

package-host: build ## what hosts with apt install: vgpud as a .deb with its units, into build/packages
	@$(PY) -m deploy.packaging host

bundle: build ## vgpud, vgpu and their own Python in one relocatable archive (VM=1: with a guest; BUNDLE_ARGS=--without-simulator)
	@$(PY) -m deploy.packaging bundle $(if $(VM),--vm) $(BUNDLE_ARGS)

# The guest library and the simulator's C half under AddressSanitizer and UndefinedBehaviorSanitizer. The simulator
# turns SIGSEGV into CUDA's illegal address itself, and Python's own allocations are not ours to check for leaks.
SANITIZE := address,undefined
asan: build ## the C parts' tests with sanitizers
	$(PY) shim/build.py --sanitize=$(SANITIZE) --out build/asan
	VGT_CFLAGS='-fsanitize=$(SANITIZE) -fno-sanitize-recover=undefined -fno-omit-frame-pointer' \
	VGT_LIBRARY=build/asan/libcuda.so.1 \
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so):$$(gcc -print-file-name=libubsan.so) \
	ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1 \
	$(PYTEST) tests/shim tests/vgpusim/device $(PYTEST_ARGS)

# Client and worker in one program, so that the sanitizer sees both sides of their shared memory; and programs
# with the guest's library alone under it (the host's pinned memory cannot be mapped there: tests/races/build.py).
ROUNDS ?= 40
tsan: build ## data races of the rings, the client's threads and the worker's
	VGT_ROUNDS=$(ROUNDS) $(PYTEST) tests/races $(PYTEST_ARGS)
	CFLAGS=-DVGW_PINNED_NBYTES=0ull $(PY) shim/build.py --sanitize=thread --out build/tsan
	VGT_LIBRARY=build/tsan/libcuda.so.1 VGT_PRELOAD=$$(gcc -print-file-name=libtsan.so) \
	TSAN_OPTIONS=exitcode=66:history_size=4:suppressions=$(CURDIR)/tests/races/suppressions.txt \
	$(PYTEST) tests/shim/test_ring.py tests/shim/test_death.py $(PYTEST_ARGS)

clang: build ## everything in C by the other compiler too, warnings as errors, into build/clang
	CC=clang $(PY) shim/build.py --out build/clang
	CC=clang $(PY) shim/build_cudart.py --out build/clang/cudart
	CC=clang $(PY) shim/build_compiler.py --out build/clang/compiler
	CC=clang $(PY) shim/build_cupti.py --out build/clang/cupti
	CC=clang $(PY) shim/build_notice.py --out build/clang/notice
	CC=clang $(PY) daemon/executor/build_ffi.py --out build/clang

# What of asan, tsan and fuzz every commit can afford: some six minutes.
sanitize-short: build ## the CI's part of asan, tsan and fuzz
	$(MAKE) asan PYTEST_ARGS='-q -k "test_session or test_endpoint or test_stub or test_stream or test_memory"'
	VGT_ROUNDS=2 $(PYTEST) -q tests/races
	$(PYTEST) -q tests/fuzz/test_in_process.py
	$(MAKE) fuzz

fuzz: build ## hostile command streams for FUZZ_S seconds (60), each from a seed that is printed
	@$(PY) -m tests.fuzz.executor $(FUZZ_S)

fuzz-records: build ## the executor in process under sanitizers, FUZZ_S seconds: records on two rings and the socket, guided by coverage
	@$(PY) -m tests.fuzz.in_process $(FUZZ_S)

fuzz-threads: build ## the same search under ThreadSanitizer
	@$(PY) -m tests.fuzz.in_process $(FUZZ_S) --sanitize thread

fuzz-floor: build ## which lines of the executor that search executes in FUZZ_S seconds, beside what it must (tests/fuzz/floor.tsv)
	@$(PY) -m tests.fuzz.in_process $(FUZZ_S) --floor

worker-lines: build ## one table: lines that the search executes, that tests with workers of their own do, and both
	@$(PY) -m tests.fuzz.worker_lines

STREAMS ?= 20
faults: build ## one call at a time fails (memory, threads, descriptors), in STREAMS streams of records, under sanitizers
	@$(PY) -m tests.fuzz.in_process --faults $(STREAMS)

CHAOS ?= 50
chaos: build ## CHAOS rounds of killed, stopped and half-said clients, workers and launchers; nothing may be left behind
	@$(PY) -m tests.chaos $(CHAOS)

SOAK ?= 500
soak: build ## SOAK sessions one after another; memory, descriptors, files and processes may not grow
	@$(PY) -m tests.chaos.soak $(SOAK)

api: build ## the coverage table: every driver function and how it travels; docs/api.md, too
	@$(PY) -m protocol.gen --reference docs/api.md
	@$(VENV)/bin/vgpu api

clean: ## remove what was built, but not .venv
	rm -rf build daemon/vgpud/_gen daemon/vgpusim/_gen guest/vgpu_guest/_gen daemon/vgpud/_executor*.so
