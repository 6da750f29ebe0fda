"""The network between the machines of a campus: whether the trunks of this part can go over it."""

from __future__ import annotations

from ipaddress import IPv4Address

from testbed.emulation.description import link_requests
from testbed.emulation.netlink import NetlinkSocket, attributes
from testbed.errors import SetupError

IFLA_MTU = 4
ENCAPSULATION_BYTES = 50  # Ethernet, IPv4, UDP and VXLAN around a frame
LEAST_MTU = 1500 + ENCAPSULATION_BYTES


def check_underlay(here: IPv4Address) -> None:
    """Raise SetupError if no interface of this machine has the address, or if its packets are too small for a frame."""
    with NetlinkSocket() as socket:
        nothing = link_requests.ADDRESS_MESSAGE.pack(link_requests.AF_INET, 0, 0, 0, 0)
        owner = 0
        for body in socket.dump(link_requests.RTM_GETADDR, nothing, "list of addresses"):
            _, _, _, _, ifindex = link_requests.ADDRESS_MESSAGE.unpack_from(body)
            values = attributes(body[link_requests.ADDRESS_MESSAGE.size :])
            if values.get(link_requests.IFA_LOCAL) == here.packed:
                owner = ifindex
        if not owner:
            raise SetupError(
                f"no interface here has the address {here}: this is not the machine that the campus names so"
            )
        links = link_requests.LINK_MESSAGE.pack(0, 0, 0, 0, 0, 0)
        for body in socket.dump(link_requests.RTM_GETLINK, links, "list of interfaces"):
            _, _, _, ifindex, _, _ = link_requests.LINK_MESSAGE.unpack_from(body)
            values = attributes(body[link_requests.LINK_MESSAGE.size :])
            mtu = int.from_bytes(values[IFLA_MTU], "little")
            if ifindex == owner and mtu < LEAST_MTU:
                name = values[link_requests.IFLA_IFNAME].rstrip(b"\0").decode()
                raise SetupError(
                    f"{name} ({here}) has an MTU of {mtu}: trunks to other machines need {LEAST_MTU}. "
                    f"Mend it on all of them: ip link set {name} mtu {LEAST_MTU}"
                )
