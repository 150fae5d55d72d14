"""Declaration and validation of parameters, on a bare rclpy node."""

import pytest
from rclpy.node import Node
from rclpy.parameter import Parameter
from ros_peer import MODEL

from rsd_planner.errors import ParameterError
from rsd_planner.ros.parameters import SPECIFICATIONS, ParameterServer

GIVEN = {"model": str(MODEL), "cameras": ["front"], "camera_ids": [1]}


@pytest.fixture
def serve(context):
    nodes = []

    def make(**given):
        overrides = [Parameter(name, value=value) for name, value in {**GIVEN, **given}.items()]
        nodes.append(Node("parameters", parameter_overrides=overrides))
        return ParameterServer(nodes[-1]), nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()


def test_defaults_of_the_model_are_those_of_the_planner(serve):
    pytest.importorskip("torch", reason="PyTorch is not in this environment")
    from rsd_planner.planner import PlannerSettings

    parameters = serve()[0].read()
    settings = PlannerSettings()
    for name in (
        "device",
        "dtype",
        "temperature",
        "top_p",
        "max_reasoning_tokens",
        "memory_ticks",
        "allow_plain_decoding",
        "accept",
        "seed",
    ):
        assert getattr(parameters, name) == getattr(settings, name)
    assert parameters.path_tolerance == settings.path_tolerance_m
    assert parameters.load_request.settings["path_tolerance_m"] == 0.1
    assert (parameters.verify_length, settings.verify_length) == (0, None)
    assert (parameters.reasoning_deadline, settings.reasoning_deadline_s) == (0.0, None)


def test_every_parameter_is_described(serve):
    _, node = serve()
    for name in SPECIFICATIONS:
        assert node.describe_parameter(name).description


def test_cameras_are_ordered_by_id_so_that_the_first_is_the_reference(serve):
    parameters = serve(cameras=["tele", "left"], camera_ids=[6, 0])[0].read()
    assert dict(parameters.cameras) == {"left": 0, "tele": 6}
    assert parameters.reference_camera == "left"


def test_an_integer_serves_where_a_number_is_expected(serve):
    assert serve(max_input_age=2)[0].read().max_input_age == 2.0


@pytest.mark.parametrize(
    ("name", "value", "found", "expected"),
    [
        ("temperature", 3.5, "3.5", "number from 0 to 2"),
        ("temperature", float("nan"), "nan", "number from 0 to 2"),
        ("temperature", "hot", "'hot'", "number from 0 to 2"),
        ("max_reasoning_tokens", 0, "0", "integer from 1 to 4096"),
        ("seed", 1.5, "1.5", "integer"),
        ("verify_length", 16, "16", "integer from 0 to 15"),
        ("memory_ticks", -1, "-1", "integer from 0 to 1000"),
        ("reasoning_deadline", -0.1, "-0.1", "number from 0 to 60"),
        ("allow_plain_decoding", 1, "1", "true or false"),
        ("accept", "loosely", "'loosely'", "one of exact, action_tolerant"),
        ("path_tolerance", 0.0, "0.0", "number from 0.001 to 10"),
        ("dtype", "float64", "'float64'", "one of float32, bfloat16"),
        ("image_transport", "h264", "'h264'", "one of compressed, raw"),
        ("autostart", "yes", "'yes'", "true or false"),
        ("model", "", "''", "an existing model directory"),
        ("cameras", None, "[]", "[str, ...]"),  # how an empty list in a YAML file arrives
        ("cameras", ["front", "front"], "['front', 'front']", "at least one name and each only once"),
        ("cameras", ["Front left"], "'Front left'", "lower-case"),
        ("camera_ids", [0, 1], "[0, 1]", "a different id for each of the 1 `cameras`"),
        ("camera_ids", [7], "7", "ids from 0 to 6"),
        ("camera_ids", 1, "1", "[int, ...]"),
    ],
)
def test_what_is_not_accepted_is_named_with_what_was_found_and_expected(serve, name, value, found, expected):
    server, _ = serve(**{name: value})
    with pytest.raises(ParameterError) as raised:
        server.read()
    message = str(raised.value)
    assert message.startswith(f"parameter '{name}': found {found}")
    assert expected in message


def test_a_rejected_value_counts_until_the_parameter_is_set_anew(serve):
    server, node = serve(temperature="hot")
    with pytest.raises(ParameterError):
        server.read()
    node.set_parameters([Parameter("temperature", value=0.5)])
    server.accepted(["temperature"])
    assert server.read().temperature == 0.5


def test_out_of_range_is_refused_when_set_at_run_time(serve):
    _, node = serve()
    assert not node.set_parameters([Parameter("top_p", value=1.5)])[0].successful


def test_unknown_parameters_are_pointed_out_with_the_closest_name(serve):
    server, _ = serve(max_imput_age=2.0, zzz=1)
    assert server.unknown_overrides() == [
        "parameter 'max_imput_age' is not known and has no effect; did you mean 'max_input_age'?",
        "parameter 'zzz' is not known and has no effect",
    ]
