# `make demo` and `make test` set themselves up in .venv; a second run starts at once.
#   PYTHON=...       the interpreter to build .venv from (3.11 or 3.12); found by itself if not given
#   TORCH_INDEX=...  a further package index for PyTorch, such as its CPU builds

.DEFAULT_GOAL := help
.PHONY: demo test gpu-test soak lint clean help setup

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
REQUIREMENTS := requirements.txt requirements-engines.txt requirements-ros.txt requirements-dev.txt
STAMP := $(VENV)/ready-$(shell cat $(REQUIREMENTS) setup.py | cksum | cut -d' ' -f1)

# The wheels' ROS and nothing else: a sourced ROS installation has its own rclpy and libraries on these paths.
unexport PYTHONPATH PYTHONHOME LD_LIBRARY_PATH CMAKE_PREFIX_PATH COLCON_PREFIX_PATH
unexport ROS_DISTRO ROS_VERSION ROS_PYTHON_VERSION ROS_LOCALHOST_ONLY ROS_STATIC_PEERS ROS_DISCOVERY_SERVER
unexport RMW_IMPLEMENTATION FASTDDS_DEFAULT_PROFILES_FILE FASTRTPS_DEFAULT_PROFILES_FILE _ROS_WHEELS_BOOTSTRAP_COMPLETE
export VIRTUAL_ENV := $(VENV)
export AMENT_PREFIX_PATH := $(VENV)
export PATH := $(BIN):$(PATH)
export OMP_NUM_THREADS ?= 1
export ROS_AUTOMATIC_DISCOVERY_RANGE := LOCALHOST
export ROS_DOMAIN_ID := $(shell echo $$(($$PPID % 100 + 1)))

demo: $(STAMP)  ## play the bundled bag through the node, then evaluate it; writes out/demo/
	@exec $(BIN)/python -m rsd_planner.demo.run_demo --out out/demo

test: lint  ## ruff, mypy and all tests
	$(BIN)/python -m pytest

soak: $(STAMP)  ## the node on a looping recording with dropped frames and resets, for SECONDS=1200
	$(BIN)/python test/ros/soak.py --seconds $(or $(SECONDS),1200)

gpu-test: $(STAMP)  ## what needs an NVIDIA GPU; skipped with the reason where there is none
	$(BIN)/python -m pytest -rs test/gpu

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(STAMP)  ## only build .venv

$(STAMP):
	@python=$$(sh scripts/find_python $(PYTHON)) && \
	echo "Setting up .venv with $$python: some minutes the first time, PyTorch is most of it." && \
	{ [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); }
	$(BIN)/python -m pip install --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(REQUIREMENTS:%=-r %)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --editable .
	@rm -f $(VENV)/ready-* && touch $@

clean:  ## remove .venv and everything built or written here
	rm -rf .venv build install log out *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find rsd_planner test launch -name __pycache__ -prune -exec rm -rf {} +

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' Makefile
