"""Fails if a test of the target was skipped, or if the comparison with test/golden did not run."""

import sys
from xml.etree import ElementTree

cases = [case for case in ElementTree.parse(sys.argv[1]).iter("testcase") if "test.target." in case.get("classname")]
golden = [case for case in cases if case.get("classname").endswith(".test_golden")]
skipped = [f"{case.get('classname')}::{case.get('name')}" for case in cases if case.find("skipped") is not None]
if not golden or skipped:
    sys.exit(f"error: {len(golden)} golden tests ran; skipped: {', '.join(skipped) or 'none'}")
print(f"{len(golden)} golden tests ran, none skipped")
