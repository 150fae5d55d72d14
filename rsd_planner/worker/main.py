"""Entry point of the worker process: `python main.py CHANNEL MEMORY`, two inherited file descriptors.

Run by its path and on any interpreter that has PyTorch: the package is the node's own, whatever is installed there.
"""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the node decides
    _use_package(Path(__file__).resolve().parents[1])
    stream = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with_node, args=(stream.fileno(),), daemon=True).start()
    try:
        from rsd_planner.worker.channel import Channel
        from rsd_planner.worker.server import Server, load_planner
        from rsd_planner.worker.shared_memory import SharedMemory
    except ImportError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    Server(Channel(stream), SharedMemory(int(sys.argv[2])), load_planner).serve()


def _use_package(package: Path) -> None:
    sys.path.pop(0)  # this folder, whose modules are no top-level ones
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = module
    spec.loader.exec_module(module)


def _end_with_node(descriptor: int) -> None:
    """End at once when the node is gone, also in the middle of a plan: whatever it is, nobody waits for it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
