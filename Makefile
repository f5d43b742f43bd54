# Every target sets up what it needs in .venv, and does nothing about it when nothing has changed.
PYTHON ?= python3
VENV := .venv
VENV_ALL := .venv-all
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Compiled files are kept, whatever the environment says: collecting the tests takes half as long with them.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -q -n 2 --dist worksteal
# The compiled half of ir-measures has no wheel for Linux on ARM; Triever's own provider stands in there.
IR_MEASURES := $(PIP) --no-deps ir-measures

.PHONY: quickstart test test-all test-integrations check format docs pages page bench clean

quickstart: $(VENV)/.core
	$(VENV)/bin/triever quickstart

test: check
	$(PYTEST)

# What takes longer than a person waits for: fuzzing, kills, larger models, and more examples of every property.
test-all: check $(VENV_ALL)/bin/python
	HYPOTHESIS=thorough $(PYTEST) -m '(long or hypothesis) and not slow'
	$(MAKE) --no-print-directory test-integrations

# Adapters beside the frameworks they are for. A framework that cannot be installed is left out, and its tests say so.
test-integrations: $(VENV_ALL)/bin/python
	@$(MAKE) --no-print-directory --silent $(VENV_ALL)/.frameworks || echo 'some frameworks cannot be installed here; their tests are skipped'
	OMP_NUM_THREADS=1 $(VENV_ALL)/bin/python -m pytest -q -m long tests/integrations

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ty check --error-on-warning

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: $(VENV)/.dev
	$(VENV)/bin/python benchmarks/streaming.py
	$(VENV)/bin/triever bench decode

pages: $(VENV)/.dev
	rm -rf docs/results
	$(VENV)/bin/triever results results --pages docs
	$(VENV)/bin/python -m tests.cli_page > docs/cli.md
	$(VENV)/bin/python -m tests.bad_input > docs/bad-input.md
	$(VENV)/bin/python -m tests.scale_page
	$(VENV)/bin/python -m tests.front_page
	$(VENV)/bin/python -m tests.study_page
	$(VENV)/bin/python -m tests.architecture_page
	$(VENV)/bin/python benchmarks/pictures.py

# The page of the server, from web/ into the package. It needs Node 20, which nothing else does: what it builds is committed.
page:
	cd web && npm install --no-audit --no-fund && npm test && npm run build

clean:
	rm -rf web/node_modules $(VENV) $(VENV_ALL) site dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Triever needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	$(IR_MEASURES)
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev,docs,plot,tensorboard]'
	touch $@

# Frameworks have an environment of their own, so that .venv stays as light as a user's. It finds the packages of .venv
# through a .pth file, behind its own: PyTorch is not installed twice, and pip changes nothing in .venv.
$(VENV_ALL)/bin/python: | $(VENV)/.dev
	$(VENV)/bin/python -m venv $(VENV_ALL)
	$(VENV)/bin/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(VENV_ALL)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/core.pth

# One after the other: what is missing for one framework leaves the others as they are. PyTerrier and MTEB come without what
# they require, and that by name: trec_eval has no wheel for Linux on ARM.
FRAMEWORKS := 'langchain-core langchain-tests' mcp llama-index-core haystack-ai \
	'pandas ir-datasets deprecated more-itertools scipy jinja2 statsmodels dill lz4 beautifulsoup4' '--no-deps pyterrier' \
	'datasets sentence-transformers polars scikit-learn scipy requests pydantic' '--no-deps mteb' 'ray[data,serve,train]'
PIP_ALL := $(VENV_ALL)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	--only-binary :all:
$(VENV_ALL)/.frameworks: constraints.txt | $(VENV_ALL)/bin/python
	missing=0; for packages in $(FRAMEWORKS); do $(PIP_ALL) $$packages || missing=1; done; exit $$missing
	touch $@
