"""A controller of one's own: a learning switch.

Start a campus with `controller="tcp:127.0.0.1:6653"` and run this in the namespace of its switches:
`net.get("core").popen(["python", "docs/examples/learning_switch.py"])`. Trees only: it floods.
"""

from controller.openflow import runner

runner.prepare()

from os_ken.base.app_manager import OSKenApp  # noqa: E402
from os_ken.controller import ofp_event  # noqa: E402
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls  # noqa: E402
from os_ken.lib.packet import ethernet, packet  # noqa: E402
from os_ken.ofproto import ofproto_v1_3  # noqa: E402


class LearningSwitch(OSKenApp):
    """A switch that learns behind which port an address is, and sends what it does not know everywhere."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.port_of = {}

    # a list of states: a tuple never fires, and gives no error
    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, [CONFIG_DISPATCHER])
    def connected(self, event):
        """Ask for every packet that no rule knows."""
        self.add_rule(event.msg.datapath, 0, {}, event.msg.datapath.ofproto.OFPP_CONTROLLER)

    @set_ev_cls(ofp_event.EventOFPPacketIn, [MAIN_DISPATCHER])
    def packet_came(self, event):
        """Learn its source; send it on, with a rule for the next one if its destination is known."""
        message = event.msg
        switch, came_by = message.datapath, message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        self.port_of[switch.id, frame.src] = came_by
        out = self.port_of.get((switch.id, frame.dst), switch.ofproto.OFPP_FLOOD)
        if out != switch.ofproto.OFPP_FLOOD:
            self.add_rule(switch, 1, {"in_port": came_by, "eth_dst": frame.dst}, out)
        actions = [switch.ofproto_parser.OFPActionOutput(out)]
        switch.send_msg(
            switch.ofproto_parser.OFPPacketOut(switch, switch.ofproto.OFP_NO_BUFFER, came_by, actions, message.data)
        )

    def add_rule(self, switch, priority, match, port):
        """Send packets that match to a port."""
        parser = switch.ofproto_parser
        actions = [parser.OFPActionOutput(port, switch.ofproto.OFPCML_NO_BUFFER)]
        apply = parser.OFPInstructionActions(switch.ofproto.OFPIT_APPLY_ACTIONS, actions)
        rule = parser.OFPFlowMod(switch, priority=priority, match=parser.OFPMatch(**match), instructions=[apply])
        switch.send_msg(rule)


if __name__ == "__main__":
    runner.run(LearningSwitch)
