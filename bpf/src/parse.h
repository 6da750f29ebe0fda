/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From an Ethernet frame to addresses, protocol and the offset of the transport header. Both programs use it.
 *
 * A tag that the driver or a VLAN device keeps beside the packet (skb->vlan_present) is not in its bytes, so the
 * bytes parse as untagged; up to two tags in the bytes (802.1Q, 802.1ad, QinQ) are stepped over. A campus has IPv4
 * alone: IPv6 is another EtherType that is not known here. What does not parse says how far it got (`reached`), and
 * each program decides what that means: egress sends it to the research class, the kill-switch fails closed.
 */
#ifndef RECLAIM_PARSE_H
#define RECLAIM_PARSE_H

#include "reclaim.h"

#define INLINE static __always_inline
#define ETH_BYTES 14
#define MAX_TAGS 2
#define MAX_OFFSET 256 /* of a header that is read in place */

#define MORE_FRAGMENTS 0x2000
#define FRAGMENT_OFFSET 0x1fff

enum reached {
	REACHED_NOTHING, /* the link header or the tags are broken */
	REACHED_ETHERTYPE, /* not IPv4, or its fixed header is broken */
	REACHED_ADDRESSES, /* the fixed header is good, the way to the transport header is not */
	REACHED_TRANSPORT, /* `proto` and `transport` are known; of a later fragment: no header there */
};

struct parsed {
	enum reached reached;
	__u16 ethertype; /* host byte order */
	__u16 first_word; /* first 16 bits of the IP header, network byte order */
	__u32 network; /* offset of the network header */
	__u32 transport; /* offset of the transport header */
	__u16 fragment_units; /* fragment offset in units of 8 bytes */
	__u8 proto;
	__u32 saddr; /* network byte order */
	__u32 daddr;
};

struct tag {
	__be16 tci;
	__be16 ethertype;
};

INLINE int is_tag(__u16 ethertype)
{
	return ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD;
}

INLINE int read(const struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	return bpf_skb_load_bytes(skb, offset, to, size) == 0;
}

/*
 * `size` bytes at `offset`: in place if they lie in the linear part, which headers nearly always do (1 ns), else copied
 * to `copy` by the helper (14 ns). NULL if the packet is too short.
 */
INLINE const void *peek(const struct __sk_buff *skb, __u32 offset, void *copy, __u32 size)
{
	const void *data = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;

	if (offset <= MAX_OFFSET && data + offset + size <= end)
		return data + offset;
	return bpf_skb_load_bytes(skb, offset, copy, size) ? NULL : copy;
}

INLINE int parse_link(const struct __sk_buff *skb, struct parsed *p)
{
	__be16 ethertype;
	struct tag tag;
	int i;

	if (!read(skb, ETH_BYTES - sizeof(ethertype), &ethertype, sizeof(ethertype)))
		return 0;
	p->ethertype = bpf_ntohs(ethertype);
	p->network = ETH_BYTES;
	for (i = 0; i < MAX_TAGS && is_tag(p->ethertype); i++) {
		if (!read(skb, p->network, &tag, sizeof(tag)))
			return 0;
		p->ethertype = bpf_ntohs(tag.ethertype);
		p->network += sizeof(tag);
	}
	return !is_tag(p->ethertype);
}

INLINE enum reached take_ipv4(const struct __sk_buff *skb, struct parsed *p, const struct iphdr *ip)
{
	if (ip->version != 4)
		return REACHED_ETHERTYPE;
	p->first_word = *(const __u16 *)ip;
	p->saddr = ip->saddr;
	p->daddr = ip->daddr;
	p->proto = ip->protocol;
	p->fragment_units = bpf_ntohs(ip->frag_off) & FRAGMENT_OFFSET;
	p->transport = p->network + ip->ihl * 4;
	return ip->ihl < 5 || p->transport > skb->len ? REACHED_ADDRESSES : REACHED_TRANSPORT;
}

INLINE enum reached parse_ipv4(const struct __sk_buff *skb, struct parsed *p)
{
	struct iphdr ip;

	return read(skb, p->network, &ip, sizeof(ip)) ? take_ipv4(skb, p, &ip) : REACHED_ETHERTYPE;
}

INLINE void parse_any(struct __sk_buff *skb, struct parsed *p)
{
	if (!parse_link(skb, p))
		return;
	p->reached = REACHED_ETHERTYPE;
	if (p->ethertype == ETH_P_IP)
		p->reached = parse_ipv4(skb, p);
}

/*
 * Fills in `p`, which is all zero before. Untagged IPv4, as nearly all packets are, is read in place.
 *
 * A global function, so that the verifier judges it once by itself and its many ways out count as one in the
 * callers, which halves the time to load; a call costs 1 ns.
 */
__noinline int parse(struct __sk_buff *skb, struct parsed *p)
{
	const struct ethhdr *eth = (const void *)(long)skb->data;
	const struct iphdr *ip = (const void *)(eth + 1);

	if (!p)
		return 0;
	if ((const void *)(ip + 1) <= (const void *)(long)skb->data_end && eth->h_proto == bpf_htons(ETH_P_IP)) {
		p->ethertype = ETH_P_IP;
		p->network = ETH_BYTES;
		p->reached = take_ipv4(skb, p, ip);
	} else {
		parse_any(skb, p);
	}
	return 0;
}

#endif
