/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The kill-switch, as the programs that obey it read and count it. */
#ifndef RECLAIM_SWITCH_H
#define RECLAIM_SWITCH_H

#include "parse.h"
#include "reclaim.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kill_switch);
} reclaim_switch SEC(".maps");

INLINE int is_coordinator(const struct kill_switch *ks, __u32 address)
{
	return address && address == ks->coordinator;
}

INLINE int is_isolated(const struct kill_switch *ks, __u32 mode)
{
	if (mode != SWITCH_DRAIN)
		return 1;
	return ks->isolate_at_ns && bpf_ktime_get_ns() >= ks->isolate_at_ns;
}

INLINE void count_drop(const struct __sk_buff *skb, struct kill_switch *ks)
{
	if (!ks->first_drop_ns)
		__sync_val_compare_and_swap(&ks->first_drop_ns, 0, bpf_ktime_get_ns());
	__sync_fetch_and_add(&ks->dropped_packets, 1);
	__sync_fetch_and_add(&ks->dropped_bytes, skb->len);
}

#endif
