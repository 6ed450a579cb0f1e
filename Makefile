# Two commands do everything on a fresh Debian machine, packages included:
#   make         builds and runs the demo
#   make test    builds everything and passes the tests
# The rest are for work on one part.

BUILD := build/release
JOBS  := $(shell nproc)
LAUNCHER := -DCMAKE_CXX_COMPILER_LAUNCHER=$(CURDIR)/tools/compile
# The wheel and the Node addon that are tested link the objects of `build`; those of packages are compiled for themselves.
OBJECTS := $(CURDIR)/$(BUILD)

.PHONY: all build demo test test-core test-sanitize test-x86 test-fuzz test-cuda test-python test-torch-suite test-mpi test-js \
        test-explorer \
        bench bench-peers fuzz cuda explorer explorer-serve install clean

all: demo

build:
	@tools/setup core
	@cmake --preset release -DPOOLGRAD_TESTS=OFF $(LAUNCHER) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@$(BUILD)/cli/poolgrad demo

# Every part of the tests; each can run alone.
test: test-core test-sanitize test-x86 test-fuzz test-cuda test-python test-mpi test-js test-explorer test-docs
	@echo "all tests passed"

test-core:
	@tools/setup core tests cli
	@cmake --preset release -DPOOLGRAD_TESTS=ON $(LAUNCHER) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

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

# The CUDA kernels on a GPU in software; compiled by nvcc where that is; on a GPU where there is one.
test-cuda:
	@tools/setup core
	@tests/cuda/test.sh

test-python: build
	@tools/setup core python
	@POOLGRAD_CMAKE_ARGS="$${POOLGRAD_CMAKE_ARGS:--DPOOLGRAD_OBJECTS=$(OBJECTS)}" bindings/python/test.sh

# PyTorch's own tests with poolgrad in the place of its pooling; half an hour, and not part of test.
test-torch-suite: build
	@tools/setup core python
	@bindings/python/tests/torch_suite/run.sh

# A volume split among the processes of Open MPI.
test-mpi: build
	@tools/setup core mpi
	@examples/mpi/test.sh $(BUILD)

test-js: build
	@tools/setup core js
	@POOLGRAD_OBJECTS=$(OBJECTS) bindings/js/test.sh

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
	@explorer/serve.sh $(PORT)

install: build
	@cmake --install $(BUILD)
	@[ "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig  # or programs would not find the library

clean:
	rm -rf build dist

# What surrounds the library. The packages of dist/, and each of them tried in an empty place; the site, into dist/site, and read by a browser; the code blocks of the
# documentation that C++'s own tests do not run, and the notebook; static checks; what must be true before a release.
# PARTS="wheel npm" makes or tries only some of the packages (packaging/package.sh names them), and so not CUDA's, which takes half an hour.
.PHONY: package test-package docs test-site test-docs lint release

package:
	@tools/setup core cli js package
	@packaging/package.sh $(PARTS)

test-package:
	@tools/setup core cli js package
	@packaging/test.sh $(PARTS)

docs:
	@tools/setup core docs js explorer
	@docs/build.sh

test-site: docs
	@node --test tests/docs/site.mjs

# The pages call test programs, the packages of Python and JavaScript, and the explorer.
test-docs:
	@tools/setup core tests cli python notebook mpi js explorer
	@cmake --preset release -DPOOLGRAD_TESTS=ON $(LAUNCHER) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@[ -f bindings/js/dist/node/index.cjs ] || POOLGRAD_OBJECTS=$(OBJECTS) bindings/js/build.sh
	@/usr/bin/python3 tests/docs/blocks.py --build $(BUILD) --language python,sh,js
	@/usr/bin/python3 tests/docs/notebook.py --build $(BUILD) examples/gradient.ipynb

lint:
	@tools/setup core lint js
	@tools/lint

release: package test-package
	@packaging/release.sh
