"""Message classes by name, imported when first asked for."""

from __future__ import annotations

from importlib import import_module


class MessageTypes(dict[str, type]):
    """`types["nav_msgs/msg/Path"]` is rclpy's class of that name.

    Raises:
        LookupError: On access, when the package is not installed or has no such message.
    """

    def __missing__(self, name: str) -> type:
        package, _, message = name.partition("/msg/")
        try:
            found: type = getattr(import_module(f"{package}.msg"), message)
        except (ImportError, AttributeError) as error:
            raise LookupError(f"message type {name} is not installed") from error
        self[name] = found
        return found
