# Two commands do everything on a fresh Debian machine, packages included:
#   make         builds and runs the demo
#   make test    builds everything and passes the tests
# The rest are for work on one part.

BUILD := build/release
JOBS  := $(shell nproc)
CCACHE := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

.PHONY: all build demo test test-core test-sanitize test-x86 test-fuzz test-cuda test-python test-torch-suite test-js \
        test-explorer \
        bench bench-peers fuzz cuda explorer explorer-serve install clean

all: demo

build:
	@tools/setup core
	@cmake --preset release -DPOOLGRAD_TESTS=OFF $(CCACHE) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@$(BUILD)/cli/poolgrad demo

# Every part of the tests; each can run alone.
test: test-core test-sanitize test-x86 test-fuzz test-cuda test-python test-js test-explorer
	@echo "all tests passed"

test-core:
	@tools/setup core tests cli
	@cmake --preset release -DPOOLGRAD_TESTS=ON $(CCACHE) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) --output-on-failure

# The seconds are for each sanitizer.
test-sanitize:
	@tools/setup core tests fuzz
	@tests/sanitize.sh 10

test-x86:
	@tools/setup core x86
	@tests/x86.sh 20

test-fuzz:
	@tools/setup core fuzz
	@fuzz/run.sh 30

# Compiles the CUDA backend where nvcc is; runs its tests where there is a GPU.
test-cuda:
	@tests/cuda/test.sh

test-python:
	@tools/setup core python
	@bindings/python/test.sh

# PyTorch's own tests with poolgrad in the place of its max pooling; some minutes, and not part of test.
test-torch-suite: build
	@tools/setup core python
	@bindings/python/tests/torch_suite/run.sh

test-js:
	@tools/setup core js
	@bindings/js/test.sh

test-explorer:
	@tools/setup core js explorer
	@explorer/test.sh

bench: build
	@$(BUILD)/cli/poolgrad bench

bench-peers: build
	@tools/setup core bench
	@bench/peers/run.sh

# Until interrupted.
fuzz:
	@tools/setup core fuzz
	@fuzz/run.sh 0

cuda:
	@tools/setup core
	@cmake --preset cuda -DPOOLGRAD_TESTS=OFF >/dev/null
	@cmake --build build/cuda -j $(JOBS)

explorer:
	@tools/setup core js explorer
	@explorer/build.sh

explorer-serve: explorer
	@explorer/serve.sh

install: build
	@cmake --install $(BUILD)

clean:
	rm -rf build dist
