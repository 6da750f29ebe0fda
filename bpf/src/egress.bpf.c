// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What leaves a host: classify, charge, mark, account (paper A, sections VII-A and VII-C).
 *
 * Policing a TCP sender at its own egress starves it: with nothing in flight it waits for a 200 ms timer, so the
 * paper's drop-when-empty bucket yields about burst / 0.2 s. Here the socket is paced at its grant and the bucket
 * (MODE_DEBT) stands slightly above as a guard: a packet passes while there is credit and is charged afterwards, so
 * the debt is one super-packet at most and a bucket shallower than a super-packet cannot starve a flow. The paper's
 * literal bucket (MODE_DROP) stays as a baseline.
 *
 * Both migration classes are charged to one aggregate bucket of the host as well; if that refuses, the flow's own
 * charge is given back, so that a refusal by one never costs the other. Where checkpoints are below research on every port,
 * they may use more than the migration share, and only migrations are charged to it.
 *
 * A root user of the host can take this program off its interface, or send around it (PACKET_QDISC_BYPASS). It is how an
 * honest host keeps its grants; what must hold against a dishonest one, the switch's side of the cable holds (port.bpf.c).
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A flow's slot in reclaim_meters. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, __u32);
} reclaim_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u32);
	__type(value, struct meter);
} reclaim_meters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meter);
} reclaim_aggr SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CLASSES);
	__type(key, __u32);
	__type(value, struct traffic);
} reclaim_classes SEC(".maps");

#ifdef GUESTS /* on a machine whose owner's packets are none of this program's */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} reclaim_guests SEC(".maps");
#endif

INLINE __u8 dscp_of(__u32 traffic_class)
{
	switch (traffic_class) {
	case CLASS_EMERGENCY:
		return DSCP_EMERGENCY;
	case CLASS_PLANNED:
		return DSCP_PLANNED;
	case CLASS_PRESYNC:
		return DSCP_PRESYNC;
	default:
		return 0;
	}
}

INLINE int is_migration(__u32 traffic_class)
{
	return traffic_class == CLASS_PLANNED || traffic_class == CLASS_PRESYNC;
}

INLINE int charge_aggregate(__u32 traffic_class, __u32 bytes, __u64 now_ns)
{
	__u32 zero = 0;
	struct meter *aggregate;
	int passes;

	if (!is_migration(traffic_class))
		return 1;
	aggregate = bpf_map_lookup_elem(&reclaim_aggr, &zero);
	if (!aggregate || (traffic_class == CLASS_PRESYNC && aggregate->migrations_only))
		return 1;
	passes = charge_meter(aggregate, bytes, now_ns);
	count(&aggregate->traffic, bytes, passes);
	return passes;
}

INLINE int charge_flow(struct meter *flow, __u32 bytes)
{
	__u64 now_ns = bpf_ktime_get_ns();
	int passes = charge_meter(flow, bytes, now_ns);

	if (passes && !charge_aggregate(flow->traffic_class, bytes, now_ns)) {
		give_back(flow, bytes);
		passes = 0;
	}
	count(&flow->traffic, bytes, passes);
	return passes;
}

INLINE void count_class(__u32 traffic_class, __u32 bytes, int passes)
{
	struct traffic *traffic = bpf_map_lookup_elem(&reclaim_classes, &traffic_class);

	if (traffic)
		count(traffic, bytes, passes);
}

INLINE struct meter *find_flow(const struct __sk_buff *skb, const struct parsed *p)
{
	struct flow_key key = {};
	__u16 copy[2];
	const __u16 *ports;
	__u32 *slot;

	if (p->reached != REACHED_TRANSPORT || p->fragment_units)
		return NULL;
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return NULL;
	ports = peek(skb, p->transport, copy, sizeof(copy));
	if (!ports)
		return NULL;
	key.saddr = p->saddr;
	key.daddr = p->daddr;
	key.sport = ports[0];
	key.dport = ports[1];
	key.proto = p->proto;
	slot = bpf_map_lookup_elem(&reclaim_flows, &key);
	return slot ? bpf_map_lookup_elem(&reclaim_meters, slot) : NULL;
}

/*
 * The header up to its checksum, in one write (a second helper call would cost 16 ns). The checksum is changed by the
 * difference of the words, RFC 1624 eqn. 3; its order of bytes does not matter to a ones' complement sum.
 */
INLINE void write_head(struct __sk_buff *skb, __u32 network, __u16 word)
{
	__u16 copy[6], head[6];
	const __u16 *old = peek(skb, network, copy, sizeof(copy));
	__u32 sum;
	int i;

	if (!old)
		return;
	for (i = 1; i < 5; i++)
		head[i] = old[i];
	sum = (__u16)~old[5] + (__u16)~old[0] + word;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	head[0] = word;
	head[5] = ~sum;
	bpf_skb_store_bytes(skb, network, head, sizeof(head), 0);
}

/* Another code point in the first 16 bits of the header; ECN and the rest stay. */
INLINE void mark(struct __sk_buff *skb, const struct parsed *p, __u8 dscp)
{
	__u16 word = bpf_htons((bpf_ntohs(p->first_word) & 0xff03) | dscp << 2);

	if (p->reached < REACHED_ADDRESSES)
		return;
#ifndef MARK_ALWAYS /* the benchmark's build, whose packets would need it only once */
	if (word == p->first_word)
		return;
#endif
	write_head(skb, p->network, word);
}

SEC("tc")
int reclaim_egress(struct __sk_buff *skb)
{
	__u32 traffic_class = CLASS_RESEARCH;
	__u32 bytes = skb->wire_len > skb->len ? skb->wire_len : skb->len;
	struct parsed p = {};
	struct meter *flow;
	int passes = 1;

#ifdef GUESTS
	if (bpf_skb_under_cgroup(skb, &reclaim_guests, 0) != 1)
		return TC_ACT_UNSPEC;
#endif
	parse(skb, &p);
	flow = find_flow(skb, &p);
	if (flow) {
		traffic_class = flow->traffic_class;
		passes = charge_flow(flow, bytes);
	}
	count_class(traffic_class, bytes, passes);
	if (!passes)
		return TC_ACT_SHOT;
	mark(skb, &p, dscp_of(traffic_class));
	return TC_ACT_OK;
}
