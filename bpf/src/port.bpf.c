// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What a switch takes from a host: the program of the switch's side of each host's cable.
 *
 * A root user of a host can remove or go around whatever is inside the host's namespace: shapers, egress program, addresses.
 * (PACKET_QDISC_BYPASS sends past shaper and program with one socket option.) What must hold against such a user is held
 * here, in the namespace of the switches:
 *
 * - No host speaks for another. Frames whose source MAC, IPv4 source or ARP sender are not the host's are dropped, behind
 *   VLAN tags too; so are frames that hide what they carry (more than two tags, headers cut short), ARP that is not of IPv4
 *   over Ethernet, and IPv6. Other EtherTypes pass with the host's MAC; hosts understand none of them.
 * - The testbed's own classes (EF, AF41, CS1) and ARP, which the queues of all ports serve apart from research, may together
 *   have the migration share of the link and no more. Where checkpoints (CS1) are below research, they are no part of that.
 * - The host may send at its link's rate and no faster.
 *
 * What a root user of a host still can do: spend its own port's shares as it likes (forge code points within them, flood its own
 * link, starve its own flows, send broadcasts to all hosts at its link's rate), hear what its owner's switch would have
 * dropped by taking off its own ingress program, and lie in what it says under its own address. The kill-switch is inside the
 * host: it guards the owner against the campus, not the campus against the owner.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bucket.h"
#include "parse.h"
#include "reclaim.h"

#define ARP_ETHERNET_IPV4 0x00010800 /* the first word of such a message */
#define ARP_LENGTHS 0x0604
#define UDP_BYTES 8
#define TCP_BYTES 32 /* with timestamps */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* By interface number less FIRST_PORT; the loader sets how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} reclaim_ports SEC(".maps");

/* RFC 826, of IPv4 over Ethernet. */
struct arp {
	__u32 kinds;
	__u16 lengths;
	__u16 operation;
	__u16 sender_mac[3];
	__u16 sender[2];
};

INLINE int is_mac(const struct port *port, const __u16 mac[3])
{
	const __u16 *own = (const __u16 *)port->mac;

	return mac[0] == own[0] && mac[1] == own[1] && mac[2] == own[2];
}

INLINE int is_genuine_arp(const struct __sk_buff *skb, const struct parsed *p, const struct port *port)
{
	struct arp copy;
	const struct arp *arp = peek(skb, p->network, &copy, sizeof(copy));

	return arp && arp->kinds == bpf_htonl(ARP_ETHERNET_IPV4) && arp->lengths == bpf_htons(ARP_LENGTHS) &&
	       is_mac(port, arp->sender_mac) && (arp->sender[0] | (__u32)arp->sender[1] << 16) == port->ipv4;
}

/* Whether the frame says no more of its sender than what is so. */
INLINE int is_genuine(const struct __sk_buff *skb, const struct parsed *p, const struct port *port)
{
	__u16 copy[3];
	const __u16 *mac = peek(skb, ETH_ALEN, copy, sizeof(copy));

	if (!mac || !is_mac(port, mac) || p->reached == REACHED_NOTHING)
		return 0;
	switch (p->ethertype) {
	case ETH_P_IP:
		return p->reached >= REACHED_ADDRESSES && p->saddr == port->ipv4;
	case ETH_P_ARP:
		return is_genuine_arp(skb, p, port);
	case ETH_P_IPV6:
		return 0;
	default:
		return 1;
	}
}

/* Whether the queues of a port (testbed/emulation/description/shaping.py) would take what begins with this word for the testbed's own. */
INLINE int is_own_word(const struct __sk_buff *skb, const struct port *port, __u32 offset)
{
	__u32 copy, word, dscp;
	const __u32 *first = peek(skb, offset, &copy, sizeof(copy));

	if (!first)
		return 0;
	word = bpf_ntohl(*first);
	if (word >> 28 != 4)
		return word == ARP_ETHERNET_IPV4;
	dscp = word >> 18 & 0x3f;
	return dscp == DSCP_EMERGENCY || dscp == DSCP_PLANNED || (dscp == DSCP_PRESYNC && !port->checkpoints_apart);
}

/* Those queues look behind the tag that the kernel keeps beside the packet; a second one is in the bytes. */
INLINE int is_own_class(const struct __sk_buff *skb, const struct parsed *p, const struct port *port)
{
	return is_own_word(skb, port, ETH_BYTES) || (p->network != ETH_BYTES && is_own_word(skb, port, p->network));
}

/* What a super-packet will be on the wire: `wire_len` does not say it on this side of a cable. Its sender chose gso_size. */
INLINE __u32 wire_bytes(const struct __sk_buff *skb, const struct parsed *p)
{
	__u64 headers = p->transport + (p->proto == IPPROTO_UDP ? UDP_BYTES : TCP_BYTES);
	__u64 bytes = skb->len + (skb->gso_size ? skb->len / skb->gso_size * headers : 0);

	return bytes < DEEPEST_DEBT_BYTES ? bytes : DEEPEST_DEBT_BYTES;
}

INLINE int charge_port(struct port *port, __u32 bytes, int is_own)
{
	__u64 now_ns = bpf_ktime_get_ns();
	int passes = charge_meter(&port->link, bytes, now_ns);

	if (is_own) {
		if (passes && !charge_meter(&port->own, bytes, now_ns)) {
			give_back(&port->link, bytes);
			passes = 0;
		}
		count(&port->own.traffic, bytes, passes);
	}
	count(&port->link.traffic, bytes, passes);
	return passes;
}

SEC("tc")
int reclaim_port(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex - FIRST_PORT;
	struct port *port = bpf_map_lookup_elem(&reclaim_ports, &index);
	struct parsed p = {};

	if (!port)
		return TC_ACT_SHOT;
	parse(skb, &p);
	if (!is_genuine(skb, &p, port)) {
		count(&port->forged, skb->len, 0);
		return TC_ACT_SHOT;
	}
	return charge_port(port, wire_bytes(skb, &p), is_own_class(skb, &p, port)) ? TC_ACT_OK : TC_ACT_SHOT;
}
