"""Fails unless node and evaluator planned on the recording, the node at ticks that the evaluator knows as well."""

import json
import re
import sys
from pathlib import Path

printed = re.findall(r"^t0 (\d+\.\d{3}) s", Path(sys.argv[1]).read_text(), re.MULTILINE)
records = [json.loads(line) for line in (Path(sys.argv[2]) / "plans.jsonl").read_text().splitlines()]
known = {f"{record['stamp_ns'] / 1e9:.3f}" for record in records}
if not printed or not records:
    sys.exit(f"error: {len(printed)} plans from the node, {len(records)} from the evaluator, expected some of both")
if unknown := set(printed) - known:
    sys.exit(f"error: the node planned at {sorted(unknown)}, which is no tick of the recording")
if not all(record["reasoning"] and len(record["positions"]) == 64 for record in records):
    sys.exit("error: plans.jsonl has a plan without reasoning or without 64 positions")
print(f"{len(printed)} plans from the node over DDS, {len(records)} from the evaluator")
