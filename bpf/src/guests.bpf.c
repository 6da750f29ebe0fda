// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The kill-switch of a real machine. Its owner is at work on it, so it closes nothing but the sockets of one control group, in
 * which the agent and its jobs run: on every interface, by IPv4 and IPv6, in both directions. The kernel shows these programs
 * no packet of any other socket.
 *
 * Draining refuses what would open a connection, as ingress.bpf.c does; the state of the socket says whether one is open.
 * Isolated, guests neither send nor receive, but to and from the coordinator.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "switch.h"

#define PASS 1
#define DROP 0
#define UNCONNECTED 7 /* TCP_CLOSE, also of a UDP socket that is not connected */
#define LISTENING 10 /* TCP_LISTEN, also of a handshake that is not finished */
#define HANDSHAKE 12 /* TCP_NEW_SYN_RECV */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Packets begin at their IP header here. */
INLINE int is_coordinators(const struct __sk_buff *skb, const struct kill_switch *ks, __u32 offset)
{
	__u32 address;

	return skb->protocol == bpf_htons(ETH_P_IP) && read(skb, offset, &address, sizeof(address)) &&
	       is_coordinator(ks, address);
}

INLINE int opens_connection(const struct __sk_buff *skb)
{
	struct bpf_sock *sock = skb->sk;

	return !sock || sock->state == UNCONNECTED || sock->state == LISTENING || sock->state == HANDSHAKE;
}

INLINE int verdict(struct __sk_buff *skb, __u32 peer_offset, int is_inward)
{
	__u32 zero = 0;
	struct kill_switch *ks = bpf_map_lookup_elem(&reclaim_switch, &zero);
	__u32 mode;

	if (!ks)
		return DROP;
	mode = *(volatile __u32 *)&ks->mode;
	if (mode == SWITCH_OFF || is_coordinators(skb, ks, peer_offset))
		return PASS;
	if (!is_isolated(ks, mode) && !(is_inward && opens_connection(skb)))
		return PASS;
	count_drop(skb, ks);
	return DROP;
}

SEC("cgroup_skb/ingress")
int guests_in(struct __sk_buff *skb)
{
	return verdict(skb, __builtin_offsetof(struct iphdr, saddr), 1);
}

SEC("cgroup_skb/egress")
int guests_out(struct __sk_buff *skb)
{
	return verdict(skb, __builtin_offsetof(struct iphdr, daddr), 0);
}
