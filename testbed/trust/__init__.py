"""Names and secrecy of a campus's conversations: certificates of its own authority, TLS 1.3 at both ends.

May import `testbed.bounds`, `testbed.peers` and the errors. Begin with `channel.py`, through which every conversation goes.
`door.py` lets peers in, `authority.py` issues the certificates, `sealing.py` encrypts the bytes of transfers beneath their
conversation.
"""

from typing import Final

# of a scenario: bytes of checkpoints encrypted; only conversations; no certificates, as figures of the papers were played
TRANSFERS: Final = ("sealed", "authenticated", "plain")
