"""Have os-ken imported without what the campus's own controller has no use for: half the import, and bring-up waits for it.

os-ken keeps a dozen options by oslo.config, asks pbr for its own version, and knows all kinds of packets, of which this
controller makes none. Others' applications are not started so: they have all of os-ken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class Option:
    """An option as os-ken declares it."""

    def __init__(self, name: str, *_: object, default: object = None, **__: object) -> None:
        self.name, self.default = name.replace("-", "_"), default


class Options:
    """Options that were declared, with their defaults until they are set."""

    def register_opts(self, options: Iterable[Option], **_: object) -> None:
        """Declare some."""
        for option in options:
            self.__dict__.setdefault(option.name, option.default)

    register_cli_opts = register_opts

    def set(self, **values: Any) -> None:
        """Other values for some that os-ken has declared; AttributeError: it has no such option."""
        for name, value in values.items():
            getattr(self, name)
            setattr(self, name, value)


class Packet:
    """In place of os-ken's, of which nothing is made."""


class _Version:
    """In place of pbr's: which version this is, nothing asks."""

    def __init__(self, package: str) -> None:
        self.package = package

    def version_string(self) -> str:
        """No version."""
        return "unknown"


def import_lean() -> Options:
    """Call before anything imports os_ken; its options."""
    config, pbr, version = ModuleType("os_ken.cfg"), ModuleType("pbr"), ModuleType("pbr.version")
    packets, packet = ModuleType("os_ken.lib.packet"), ModuleType("os_ken.lib.packet.packet")
    options = Options()
    kinds = ("Opt", "BoolOpt", "IntOpt", "ListOpt", "MultiStrOpt", "StrOpt", "FloatOpt")
    vars(config).update(dict.fromkeys(kinds, Option), CONF=options)
    vars(version)["VersionInfo"] = _Version
    vars(pbr)["version"] = version
    vars(packet)["Packet"] = Packet
    vars(packets)["packet"] = packet
    found = find_spec("os_ken")
    packets.__path__ = [
        f"{folder}/lib/packet" for folder in (found and found.submodule_search_locations) or ()
    ]
    for module in (config, pbr, version, packets, packet):
        sys.modules.setdefault(module.__name__, module)
    return options
