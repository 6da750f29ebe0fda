// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What the kernel did to a campus: segments sent again, packets dropped and why, round trips, and how long tasks waited for a
 * processor. One object for the whole machine; each namespace that user space names (by its inode) has a record in memory that
 * user space maps. Everything else costs one failed look into a hash.
 *
 * The programs sit at the kernel's typed tracepoints and read its structures by their type format (CO-RE): the few fields used
 * are declared here, and libbpf finds where they are on the kernel that runs. A pointer that the tracepoint hands over is
 * followed by plain loads, which read 0 where it leads nowhere; only what the verifier cannot follow needs a helper's call.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "observe.h"

#define WAITING_TASKS 65536
#define FIELDS __attribute__((preserve_access_index))

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct ns_common {
	unsigned int inum;
} FIELDS;
struct net {
	struct ns_common ns;
} FIELDS;
typedef struct {
	struct net *net;
} possible_net_t;
struct net_device {
	possible_net_t nd_net;
} FIELDS;
struct sock_common {
	possible_net_t skc_net;
} FIELDS;
struct sock {
	struct sock_common __sk_common;
} FIELDS;
struct tcp_sock {
	__u32 srtt_us; /* eight times the smoothed round trip */
} FIELDS;
struct skb_shared_info {
	unsigned short gso_segs;
} FIELDS;
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned char *head;
	__u32 end; /* offset from head, on 64-bit kernels */
} FIELDS;
struct nsproxy {
	struct net *net_ns;
} FIELDS;
struct task_struct {
	int pid;
	void *mm;
	struct nsproxy *nsproxy;
} FIELDS;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32); /* inode of a network namespace */
	__type(value, __u32); /* its record */
} observe_namespaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct observed);
} observe_records SEC(".maps");

/* Since when a task waits for a processor; tasks that are forgotten here are not measured. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, WAITING_TASKS);
	__type(key, __u32);
	__type(value, __u64);
} observe_waiting SEC(".maps");

static __always_inline struct observed *record_of(struct net *net)
{
	__u32 inode = net->ns.inum;
	__u32 *slot = bpf_map_lookup_elem(&observe_namespaces, &inode);
	return slot ? bpf_map_lookup_elem(&observe_records, slot) : 0;
}

/* Of programs only: the kernel's own threads are in the machine's namespace, whatever they work for. */
static __always_inline struct observed *record_of_task(struct task_struct *task)
{
	return task->mm ? record_of(task->nsproxy->net_ns) : 0;
}

static __always_inline void count(__u64 *histogram, __u64 delay_us)
{
	__u32 value = delay_us > 0xffffffff ? 0xffffffff : delay_us, octave = 0, at = value;
#pragma unroll
	for (int step = 16; step; step >>= 1)
		if (at >> step) {
			at >>= step;
			octave += step;
		}
	__u32 bucket = value < 4 ? value : (octave - 1) * 4 + ((value >> (octave - 2)) & 3);
	if (bucket < DELAY_BUCKETS)
		__sync_fetch_and_add(&histogram[bucket], 1);
}

/* sk, skb */
SEC("tp_btf/tcp_retransmit_skb")
int on_retransmit(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct observed *seen = record_of(sk->__sk_common.skc_net.net);
	if (seen)
		__sync_fetch_and_add(&seen->retransmitted, 1);
	return 0;
}

/* skb, location, reason */
SEC("tp_btf/kfree_skb")
int on_drop(__u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct net_device *device = skb->dev;
	struct sock *sk = skb->sk;
	struct observed *seen = 0;
	if (device)
		seen = record_of(device->nd_net.net);
	else if (sk)
		seen = record_of(sk->__sk_common.skc_net.net);
	if (!seen)
		return 0;
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	__u16 segments = BPF_CORE_READ(shared, gso_segs);
	__u32 reason = (__u32)ctx[2];
	if (reason >= DROP_REASONS)
		reason = DROP_REASONS - 1;
	__sync_fetch_and_add(&seen->dropped[reason], segments ? segments : 1);
	return 0;
}

/* sk, skb */
SEC("tp_btf/tcp_probe")
int on_segment(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct observed *seen = record_of(sk->__sk_common.skc_net.net);
	if (seen)
		count(seen->round_trip_us, BPF_CORE_READ((struct tcp_sock *)sk, srtt_us) >> 3);
	return 0;
}

static __always_inline void waits(struct task_struct *task)
{
	if (!record_of_task(task))
		return;
	__u32 pid = task->pid;
	__u64 now = bpf_ktime_get_ns();
	bpf_map_update_elem(&observe_waiting, &pid, &now, BPF_ANY);
}

/* task */
SEC("tp_btf/sched_wakeup")
int on_wakeup(__u64 *ctx)
{
	waits((void *)ctx[0]);
	return 0;
}

/* task */
SEC("tp_btf/sched_wakeup_new")
int on_birth(__u64 *ctx)
{
	waits((void *)ctx[0]);
	return 0;
}

/* preempt, previous, next, previous state */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	if (ctx[0] & 1) /* what was preempted would go on, and waits */
		waits((void *)ctx[1]);
	__u32 pid = next->pid;
	__u64 *since = bpf_map_lookup_elem(&observe_waiting, &pid);
	if (!since)
		return 0;
	__u64 waited_us = (bpf_ktime_get_ns() - *since) / 1000;
	bpf_map_delete_elem(&observe_waiting, &pid);
	struct observed *seen = record_of_task(next);
	if (seen)
		count(seen->run_delay_us, waited_us);
	return 0;
}
