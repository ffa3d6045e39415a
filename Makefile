# `make demo` shows it at work on this machine, `make test` runs every test. Both install what they need with apt, and
# both need root. The rest is cargo's.

SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo demo-down test measure

BUILD := cargo build --quiet --locked --release
STEAD := $(CURDIR)/target/release/stead
DEMO := $(CURDIR)/target/demo

# Packages, the binary, an image of busybox, a containerd if none runs, and the agent on desired-state/.
demo:
	@tests/support/setup.sh packages
	$(BUILD)
	mkdir -p $(DEMO)
	if ! ctr version >/dev/null 2>&1; then
	    echo 'demo: no containerd answers; starting one'
	    printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >$(DEMO)/containerd.toml
	    setsid -f bash -c 'echo $$$$ >$(DEMO)/containerd.pid; exec containerd --config $(DEMO)/containerd.toml' >$(DEMO)/containerd.log 2>&1
	    for _ in {1..100}; do if ctr version >/dev/null 2>&1; then break; fi; sleep 0.1; done
	fi
	desired-state/images.sh $(STEAD)
	if ! kill -0 "$$(cat $(DEMO)/agent.pid 2>/dev/null)" 2>/dev/null; then
	    setsid -f bash -c 'echo $$$$ >$(DEMO)/agent.pid; exec $(STEAD) agent --desired-state $(CURDIR)/desired-state' >$(DEMO)/agent.log 2>&1
	fi
	$(STEAD) wait web shop crew --for settled --timeout 60s
	$(STEAD) status
	echo
	echo '$$ curl http://127.0.0.1:8080/'
	curl --silent --show-error --fail --max-time 5 http://127.0.0.1:8080/
	echo '$$ curl http://127.0.0.1:8081/cgi-bin/stock'
	curl --silent --show-error --fail --max-time 5 http://127.0.0.1:8081/cgi-bin/stock
	echo
	echo 'Edit a file in desired-state/ and look at `$(STEAD) status`. `make demo-down` removes everything again.'

# Removes the samples and stops what `make demo` started.
demo-down:
	@mkdir -p $(DEMO)/empty
	touch $(DEMO)/empty/.stead
	for process in agent containerd; do
	    if [ $$process = containerd ] && [ -e $(STEAD) ]; then
	        $(STEAD) agent --once --timeout 60s --desired-state $(DEMO)/empty
	    fi
	    if pid=$$(cat $(DEMO)/$$process.pid 2>/dev/null); then
	        kill "$$pid" 2>/dev/null || true
	        while kill -0 "$$pid" 2>/dev/null; do sleep 0.1; done
	        rm -f $(DEMO)/$$process.pid
	    fi
	done

# Every test, the ones on a real node with it. A machine runs more of those than it has cores: they mostly wait.
test:
	@tests/support/setup.sh
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4} cargo test --locked --no-fail-fast

# What it costs, as ratios against `ctr` in the same run; snapshots are on disk for it.
measure:
	@tests/support/setup.sh
	STEAD_LAB_DISK=1 cargo bench --quiet --locked --bench measure
