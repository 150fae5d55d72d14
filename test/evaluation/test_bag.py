from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from bag_writing import FRONT, IMAGE, KINDS, ODOMETRY, START_NS, Drive, storage_file, write

from rsd_planner.errors import BagError
from rsd_planner.evaluation.bag import open_bag, ros2_types
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.odometry import read_odometry

TOPICS = (FRONT, "/odom")


@pytest.mark.parametrize("kind", KINDS)
def test_reads_every_kind_alike(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "drive", Drive(seconds=1.0), kind)
    with open_bag(path) as bag:
        assert bag.name == "drive"
        assert [(topic.name, topic.type, topic.messages) for topic in bag.topics] == [
            (FRONT, IMAGE, 11),
            ("/odom", ODOMETRY, 51),
        ]
        assert bag.duration_s == pytest.approx(1.0)
        messages = list(bag.messages(TOPICS))
    assert len(messages) == 62
    assert [message.log_ns for message in messages] == sorted(message.log_ns for message in messages)
    images = [message for message in messages if message.topic == FRONT]
    assert decode_image(images[3].message).shape == (180, 320, 3)
    last = read_odometry([message for message in messages if message.topic == "/odom"][-1].message)
    assert last.stamp_ns == START_NS + 10**9
    np.testing.assert_allclose(last.position, (100 * np.sin(0.1), 100 * (1 - np.cos(0.1)), 0), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_ros2_messages_whatever_the_recording(tmp_path: Path, kind: str) -> None:
    with open_bag(write(tmp_path / "drive", Drive(seconds=0.2), kind)) as bag:
        for message in bag.messages(TOPICS):
            again = ros2_types().deserialize_cdr(message.cdr, message.type)
            assert again.header.stamp == message.message.header.stamp
            assert again.header.frame_id in ("camera", "odom")


@pytest.mark.parametrize("kind", ["sqlite3", "mcap"])
def test_opens_the_storage_file_without_its_directory(tmp_path: Path, kind: str) -> None:
    file = storage_file(write(tmp_path / "drive", Drive(seconds=0.2), kind))
    (file.parent / "metadata.yaml").unlink()
    with open_bag(file) as bag:
        assert sum(1 for _ in bag.messages(TOPICS)) == 14
    with pytest.raises(BagError, match=r"without metadata\.yaml"), open_bag(file.parent):
        pass


def read_all(path: Path) -> None:
    with open_bag(path) as bag:
        for _ in bag.messages([topic.name for topic in bag.topics]):
            pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.3, 0.6, 0.9])
def test_a_truncated_recording_is_one_message(tmp_path: Path, kind: str, share: float) -> None:
    path = write(tmp_path / "drive", Drive(seconds=1.0), kind)
    file = storage_file(path)
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    with pytest.raises(BagError) as error:
        read_all(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_gone_wrong_raise_nothing_but_bag_errors(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "drive", Drive(seconds=0.5), kind)
    file = storage_file(path)
    data = file.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(5):
            start = int(random.integers(0, len(damaged) - 40))
            damaged[start : start + 40] = random.bytes(40)
        file.write_bytes(damaged)
        try:
            read_all(path)
        except BagError:
            refused += 1
    assert refused > 0


def test_a_truncated_mcap_says_how_to_save_it(tmp_path: Path) -> None:
    file = storage_file(write(tmp_path / "drive", Drive(seconds=1.0), "mcap"))
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(BagError, match="truncated; `mcap recover`"):
        read_all(file)


def test_metadata_that_is_no_yaml_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "drive", Drive(seconds=0.2))
    (path / "metadata.yaml").write_text("foo: [1,2")
    with pytest.raises(BagError, match=r"metadata\.yaml") as error:
        read_all(path)
    assert "\n" not in str(error.value)


def test_what_a_parser_trips_over_is_called_damage(tmp_path: Path) -> None:
    file = storage_file(write(tmp_path / "drive", Drive(seconds=0.2)))
    file.write_bytes(file.read_bytes()[:8])
    with pytest.raises(BagError, match=r"cannot be read: it is damaged \(TypeError: "):
        read_all(file)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "drive.mcap")
    with pytest.raises(BagError, match="neither a file nor a directory"):
        read_all(tmp_path / "drive.mcap")


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_recording(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "drive", Drive(seconds=-1.0), kind)
    with pytest.raises(BagError, match="empty"):
        read_all(path)


@pytest.mark.parametrize("name", ["notes.txt", "notes.mcap", "notes.db3", "notes.bag"])
def test_a_foreign_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("Dear diary, today I drove a car.\n" * 200)
    with pytest.raises(BagError, match=name):
        read_all(path)


def test_a_missing_path_and_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(BagError, match="does not exist; expected a rosbag2 directory"):
        read_all(tmp_path / "nowhere")
    with pytest.raises(BagError, match=r"without metadata\.yaml"):
        read_all(tmp_path)
