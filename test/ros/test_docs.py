"""The documentation agrees with the code: generated tables, reasons, parameters, files and tests that it names."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from rsd_planner import plan_checks
from rsd_planner.evaluation.topics import CAMERA_NAMES
from rsd_planner.ros import session, stream
from rsd_planner.ros.parameters import SPECIFICATIONS
from rsd_planner.scene.skip import SkipReason

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TROUBLESHOOTING = (DOCS / "troubleshooting.md").read_text()
ROS_OWN = {"use_sim_time", "qos_overrides"}


@pytest.fixture(scope="module")
def writer():
    specification = importlib.util.spec_from_file_location("write_reference", ROOT / "scripts" / "write_reference.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["parameters.md", "topics.md", "diagnostics.md"])
def test_generated_pages_are_current(writer, name):
    assert (DOCS / name).read_text() == writer.references()[name], "run: python scripts/write_reference.py"


def test_meanings_are_given_for_what_there_is_and_for_nothing_else(writer):
    for part, meanings in writer.MEANINGS.items():
        keys = {key for function in writer.FUNCTIONS[part] for key in writer._keys(function)}
        assert keys == meanings.keys()
    assert writer.OUTPUTS.keys() <= writer.TOPICS.keys()


def headings(text):
    return set(re.findall(r"^### `(.+)`$", text, re.MULTILINE))


def withheld_reasons():
    """Every reason that a plan can be withheld for, from the code that counts them."""
    calls = [node for node in ast.walk(ast.parse(Path(session.__file__).read_text())) if isinstance(node, ast.Call)]
    first = [call.args[0] for call in calls if getattr(call.func, "id", "") == "Withheld"]
    named = {node.value for argument in first if isinstance(argument, ast.Constant) for node in [argument]}
    texts = re.findall(r'return (?:\(\s*)?f"([a-z ]+): ', Path(plan_checks.__file__).read_text())
    checks = {text.replace(" ", "_") for text in texts}
    return named | checks | {reason.value for reason in SkipReason} | set(session._FAILURES.values())


def test_every_reason_of_a_withheld_plan_is_explained():
    reasons = withheld_reasons()
    assert {"stale", "no_clock", "start", "reverse", "not_finite", "internal_error"} <= reasons
    section = TROUBLESHOOTING.split("## Plans are withheld")[1].split("\n## ")[0]
    assert headings(section) == reasons


def test_every_trouble_of_an_input_is_explained():
    kinds = set(re.findall(r'(?:Trouble\(\s*)"([\w ]+)"', Path(stream.__file__).read_text()))
    section = TROUBLESHOOTING.split("## Inputs do not arrive")[1].split("\n## ")[0]
    assert headings(section) == kinds == {"no publisher", "wrong type", "incompatible QoS", "no data"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_parameters_in_yaml_examples_exist(page):
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if "/rsd_planner:" in block or "/**:" in block:
            names = set(re.findall(r"^ {4}(\w+):", block, re.MULTILINE))
            assert names
            assert names <= SPECIFICATIONS.keys() | ROS_OWN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_linked_or_named_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(r"`((?:config|launch|msg|rsd_planner|scripts|test)/[\w/.]+\.\w+)`", text):
        assert (ROOT / target).exists(), target


def test_camera_ids_are_those_of_the_code():
    table = dict(re.findall(r"^\| (\d) \| `(\w+)`", (DOCS / "vehicle.md").read_text(), re.MULTILINE))
    assert set(table) == set("0123456")
    words = {number: {"_".join(name) for name, other in CAMERA_NAMES if other == number} for number in range(7)}
    for number, name in table.items():
        assert name in words[int(number)]


def test_every_complaint_has_a_test_that_exists():
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", (DOCS / "complaints.md").read_text(), re.MULTILINE)[2:]
    assert len(rows) >= 25
    for complaint, _, tests in rows:
        named = re.findall(r"`(test/[\w/]+\.py)::(\w+)`", tests)
        assert named, complaint
        for file, name in named:
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"
