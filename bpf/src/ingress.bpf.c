// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What enters a host: the owner's kill-switch.
 *
 * The verdict hangs on one word of memory that user space maps, so closing a host is one store. A notice is a time
 * in the same memory (isolate_at_ns): from then on a draining host is isolated by this program, whether or not the
 * agent or the coordinator still lives.
 *
 * Draining must let no new inbound connection in and kill no established one. New is: a TCP SYN without ACK, whatever is
 * for a listening socket or for a handshake that is not finished (its SYN was in before the switch), and UDP for which
 * this host has no connected socket. A SYN+ACK passes, because the host may still connect out to send its checkpoint
 * away. An answer of the socket table costs some 55 ns, so a draining host remembers which connections it found
 * established (`live`): they stay so until they close, and to open again takes a SYN, which is dropped. What cannot be
 * judged is dropped: truncated
 * headers, a first TCP fragment too short to show its flags, TCP at fragment offset 1, which could overwrite them
 * (RFC 1858), transport protocols and link protocols that are not known here. Later fragments pass, since without
 * their first one they reach no socket.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "switch.h"

#define TCP_BYTES 20
#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define ESTABLISHED 1 /* TCP_ESTABLISHED, also the state of a connected UDP socket */
#define LISTENING 10 /* TCP_LISTEN */
#define HANDSHAKE 12 /* TCP_NEW_SYN_RECV */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ARP over Ethernet for IPv4: the sender's protocol address stands at byte 14. */
INLINE int is_arp_of_coordinator(const struct __sk_buff *skb, const struct parsed *p, const struct kill_switch *ks)
{
	__u32 copy;
	const __u32 *sender;

	if (p->ethertype != ETH_P_ARP)
		return 0;
	sender = peek(skb, p->network + 14, &copy, sizeof(copy));
	return sender && is_coordinator(ks, *sender);
}

INLINE int is_from_coordinator(const struct __sk_buff *skb, const struct parsed *p, const struct kill_switch *ks)
{
	if (p->reached == REACHED_ETHERTYPE)
		return is_arp_of_coordinator(skb, p, ks);
	return p->reached >= REACHED_ADDRESSES && is_coordinator(ks, p->saddr);
}

/* Who sends (ports[0]) and who is to hear, as the socket helpers want it. */
INLINE struct bpf_sock_tuple tuple_of(const struct parsed *p, const __u16 ports[2])
{
	struct bpf_sock_tuple tuple = {};

	tuple.ipv4.saddr = p->saddr;
	tuple.ipv4.daddr = p->daddr;
	tuple.ipv4.sport = ports[0];
	tuple.ipv4.dport = ports[1];
	return tuple;
}

INLINE __u64 peer_of(const struct parsed *p, const __u16 ports[2])
{
	return (__u64)p->saddr << 32 | (__u32)ports[0] << 16 | ports[1];
}

/* Where a connection is remembered, if it is: Fibonacci hashing; on a collision the second one is not. */
INLINE struct live_connection *slot_of(struct kill_switch *ks, const struct parsed *p, __u64 peer)
{
	return &ks->live[((peer ^ p->daddr) * 0x9e3779b97f4a7c15ULL) >> (64 - LIVE_BITS)];
}

INLINE int is_remembered(struct kill_switch *ks, const struct parsed *p, const __u16 ports[2])
{
	__u64 peer = peer_of(p, ports);
	const struct live_connection *slot = slot_of(ks, p, peer);

	return *(volatile __u64 *)&slot->peer == peer && *(volatile __u32 *)&slot->local == p->daddr;
}

INLINE void remember(struct kill_switch *ks, const struct parsed *p, const __u16 ports[2])
{
	__u64 peer = peer_of(p, ports);
	struct live_connection *slot = slot_of(ks, p, peer);

	if (!__sync_val_compare_and_swap(&slot->peer, 0, peer))
		*(volatile __u32 *)&slot->local = p->daddr;
}

/* Whether this TCP segment would open a connection that is not open yet. */
INLINE int opens_connection(struct __sk_buff *skb, struct kill_switch *ks, const struct parsed *p,
			    const __u16 ports[2])
{
	struct bpf_sock_tuple tuple = tuple_of(p, ports);
	struct bpf_sock *sock;
	__u32 state;

	if (is_remembered(ks, p, ports))
		return 0;
	sock = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sock)
		return 0; /* for nobody: the host answers with a reset */
	state = sock->state;
	bpf_sk_release(sock);
	if (state == ESTABLISHED)
		remember(ks, p, ports);
	return state == LISTENING || state == HANDSHAKE;
}

INLINE int is_live_tcp(struct __sk_buff *skb, struct kill_switch *ks, const struct parsed *p)
{
	__u16 copy[TCP_BYTES / 2], ports[2];
	const __u16 *header;

	if (p->fragment_units)
		return p->fragment_units > 1;
	header = peek(skb, p->transport, copy, sizeof(copy));
	if (!header || (((const __u8 *)header)[13] & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return 0;
	ports[0] = header[0];
	ports[1] = header[1];
	return !opens_connection(skb, ks, p, ports);
}

INLINE int has_connected_socket(struct __sk_buff *skb, const struct parsed *p, const __u16 ports[2])
{
	struct bpf_sock_tuple tuple = tuple_of(p, ports);
	struct bpf_sock *sock;
	int connected;

	sock = bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sock)
		return 0;
	connected = sock->state == ESTABLISHED;
	bpf_sk_release(sock);
	return connected;
}

INLINE int is_live_udp(struct __sk_buff *skb, const struct parsed *p)
{
	__u16 copy[4];
	const __u16 *header;

	if (p->fragment_units)
		return 1;
	header = peek(skb, p->transport, copy, sizeof(copy));
	return header && has_connected_socket(skb, p, header);
}

/* Whether a draining host hears this packet. */
INLINE int is_live(struct __sk_buff *skb, struct kill_switch *ks, const struct parsed *p)
{
	if (p->reached == REACHED_ETHERTYPE)
		return p->ethertype == ETH_P_ARP;
	if (p->reached != REACHED_TRANSPORT)
		return 0;
	switch (p->proto) {
	case IPPROTO_TCP:
		return is_live_tcp(skb, ks, p);
	case IPPROTO_UDP:
		return is_live_udp(skb, p);
	case IPPROTO_ICMP:
		return 1;
	default: /* a protocol whose connections are not known here */
		return 0;
	}
}

SEC("tc")
int reclaim_ingress(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct kill_switch *ks = bpf_map_lookup_elem(&reclaim_switch, &zero);
	struct parsed p = {};
	__u32 mode;

	if (!ks)
		return TC_ACT_SHOT;
	/*
	 * A sender on the same machine leaves checksums to a device that is not there. Open vSwitch in user space forgets that
	 * of what it hands to its controller and is told to send on: without this, no such packet would reach a socket.
	 */
	bpf_csum_level(skb, BPF_CSUM_LEVEL_INC);
	mode = *(volatile __u32 *)&ks->mode;
	if (mode == SWITCH_OFF)
		return TC_ACT_OK;
	parse(skb, &p);
	if (is_from_coordinator(skb, &p, ks))
		return TC_ACT_OK;
	if (!is_isolated(ks, mode) && is_live(skb, ks, &p))
		return TC_ACT_OK;
	count_drop(skb, ks);
	return TC_ACT_SHOT;
}
