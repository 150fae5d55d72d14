"""The two kinds of message classes: those of rosbags, always at hand, and those of rclpy, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from rosbags.typesys import Stores, get_typestore


@cache
def store(distribution: Stores) -> Any:
    return get_typestore(distribution)


class RclpyTypes(dict[str, Any]):
    """rclpy's classes, made to check the type of every field as those of Humble do without being asked."""

    def __missing__(self, name: str) -> Any:
        package, _, message = name.partition("/msg/")
        module = pytest.importorskip(f"{package}.msg", reason=f"{package} is not installed for rclpy")
        original = getattr(module, message)
        checks = {"check_fields": True} if "_check_fields" in original.__slots__ else {}
        strict = type(message, (original,), {"__init__": lambda self, **f: original.__init__(self, **f, **checks)})
        self[name] = strict
        return strict


def rclpy_round_trip(message: Any) -> Any:
    """Through the C serialisation that DDS sees."""
    serialization = import_module("rclpy.serialization")
    kind = next(base for base in type(message).__mro__ if base.__module__.split(".")[-2:-1] == ["msg"])
    return serialization.deserialize_message(serialization.serialize_message(message), kind)


Kind = tuple[Any, Callable[[Any], Any]]  # types by name; a message as its receiver sees it


def message_kind(name: str) -> Kind:
    """A kind by its test id: rosbags_humble, rosbags_jazzy, rclpy."""
    if name == "rclpy":
        pytest.importorskip("rclpy")
        return RclpyTypes(), rclpy_round_trip
    types = store(Stores.ROS2_HUMBLE if name == "rosbags_humble" else Stores.ROS2_JAZZY)
    return types.types, lambda message: types.deserialize_cdr(
        types.serialize_cdr(message, message.__msgtype__), message.__msgtype__
    )


KINDS = ["rosbags_humble", "rosbags_jazzy", "rclpy"]
