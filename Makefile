# Everything a developer or a newcomer does. `make quickstart` and `make test` do all the set-up themselves.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRAM := $(TARGET)/release/webdyno

.PHONY: help build static deb quickstart test test-all format check bench fuzz lab lab-draw pages setup setup-test

help:
	@echo "make quickstart   install what is needed, build, and run the main job on a private Apache (two minutes to compile, one to run)"
	@echo "make test         install what is needed, and run every check and test; of tests with many cases of one kind (kills, scenarios) some"
	@echo "make test-all     the same with all cases: before a release, and before an issue is resolved"
	@echo "make build        build the release program at $(PROGRAM), its line tables beside it"
	@echo "make static       build it also as $(PROGRAM)-static, which runs on any Linux of this processor"
	@echo "make deb          make a Debian package of it in $(TARGET)/debian, with man pages and completions; with the static one if that is built"
	@echo "make lab          run the lab's scenarios (as root) and write docs/lab.md and docs/diagnosis.md; LAB='NAME NAME' only these, LAB_REPEAT=N each so often, LAB_RIVALS=1 asks other advisers, too"
	@echo "make lab-draw     run N servers drawn at random (as root; N=200, FROM=1000 the first seed) and say how often the diagnosis is right; DRAW_TUNE=1 tunes them, too"
	@echo "make pages        write the guide's pages of the scenarios and the list of metrics (docs/) anew"
	@echo "make fuzz         fuzz the readers of answers and configurations for FUZZ_S seconds (60) with FUZZ_SEED; see fuzz/README.md"
	@echo "make bench        measure against the rivals, side by side (installs wrk, nginx-light, apache2-utils; builds oha)"

setup:
	@scripts/setup run

setup-test:
	@scripts/setup test

build:
	@scripts/setup rust
	$(CARGO) build --release --locked -p webdyno
	@scripts/split-debug $(PROGRAM)

static: build
	scripts/static release

deb: build
	@scripts/deb $(PROGRAM) $(TARGET)/debian

# In a profile of its own, which is built in half the time.
quickstart: setup
	@echo "quickstart: compiling webdyno: about two minutes on two cores, no time when that was done before"
	$(CARGO) build --profile quickstart --locked -p webdyno
	$(TARGET)/quickstart/webdyno quickstart

test: setup-test
	@scripts/test

test-all: setup-test
	@WEBDYNO_TEST_ALL=1 scripts/test

# The limits' modules are declared by a macro, which cargo fmt does not look into.
format:
	$(CARGO) fmt --all
	rustfmt --edition 2024 crates/analysis/src/limits/*/*.rs

lab:
	@scripts/setup lab
	$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked -p webdyno-evaluation
	@WEBDYNO=$(PROGRAM) scripts/lab

N ?= 200
FROM ?= 1000

lab-draw:
	@scripts/setup lab
	$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked -p webdyno-evaluation
	@WEBDYNO=$(PROGRAM) scripts/lab-draw $(N) $(FROM)

pages:
	@scripts/setup rust
	$(CARGO) run --locked -q -p webdyno-evaluation -- pages --out docs

bench:
	@scripts/setup bench
	$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked -p webdyno-load --example reference
	$(CARGO) build --release --locked -p webdyno-logs --example logs
	bench/engine.sh
	bench/accuracy.sh
	bench/lists.sh
	bench/pages.sh
	bench/observe.sh
	bench/logs.sh

FUZZ_S ?= 60
FUZZ_SEED ?= $(shell date +%s)

fuzz:
	@scripts/setup rust
	WEBDYNO_FUZZ_S=$(FUZZ_S) WEBDYNO_FUZZ_SEED=$(FUZZ_SEED) \
		$(CARGO) test --release --locked -p webdyno-load -p webdyno-host --lib fuzzing -- --nocapture
