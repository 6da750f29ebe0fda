"""Runs an os-ken application in this process: what `osken-manager` did before os-ken dropped it."""

from __future__ import annotations

import logging
import os
from typing import Any

from testbed.logs import log_level


def prepare() -> None:
    """Prepare os_ken; call before anything imports it.

    It chooses its threads when imported, and without a logger it swallows what handlers raise.
    """
    os.environ["OSKEN_HUB_TYPE"] = "native"
    logging.basicConfig(level=log_level(), format="%(asctime)s %(name)s %(levelname)s %(message)s")


def run(application: type[Any], listen: str = "127.0.0.1:6653") -> None:
    """Listen for switches at ADDRESS:PORT and hand their messages to the application; does not return."""
    from os_ken import cfg
    from os_ken.base.app_manager import AppManager
    from os_ken.lib import hub

    address, _, port = listen.rpartition(":")
    options = ["--ofp-listen-host", address, "--ofp-tcp-listen-port", port]
    cfg.CONF(options, project="os_ken", version="reclaimnet", default_config_files=[])
    manager = AppManager.get_instance()
    manager.load_apps(["os_ken.controller.ofp_handler"])
    manager.applications_cls[application.__module__] = application
    hub.joinall(manager.instantiate_apps(**manager.create_contexts()))
