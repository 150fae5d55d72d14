from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """The golden model is too small for more, and threads of processes side by side wait for each other."""
    torch.set_num_threads(1)
