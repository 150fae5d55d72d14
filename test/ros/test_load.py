"""Four Full HD cameras and odometry at 100 Hz from another process: nothing of it is lost while the model runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_nothing_is_lost_under_the_load_of_a_vehicle():
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(HERE / "load.py"), "--seconds", "6"]
    found = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    print(json.dumps(found))
    assert found["sent"]["odometry"] == 600
    assert found["odometry received"] == found["sent"]["odometry"]
    assert found["images received"] == found["sent"]["images"] == 240
    assert found["plans"] >= 1
