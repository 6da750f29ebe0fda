/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Meters: charging a packet to a bucket, and counting it. The programs of a host and of its port use it.
 *
 * There is no lock: a pair of bpf_spin_lock calls costs 42 ns here, an atomic addition 1 to 5.
 */
#ifndef RECLAIM_BUCKET_H
#define RECLAIM_BUCKET_H

#include "parse.h"
#include "reclaim.h"

/*
 * Whoever moves last_ns from a value to a later one owns the time between, and he alone adds its credit. `room` is read
 * before the addition: a charge in between only makes the result smaller, as it should. The comparison is unsigned, so
 * that even a rate that user space is changing at this moment adds between nothing and a full bucket.
 */
INLINE void refill(struct bucket *b, __u64 now_ns)
{
	__u64 last_ns = b->last_ns;
	__u64 elapsed_ns = now_ns - last_ns;
	__u64 gain;
	__s64 room;

	if (now_ns <= last_ns) /* another CPU read the clock later and came first */
		return;
	if (__sync_val_compare_and_swap(&b->last_ns, last_ns, now_ns) != last_ns)
		return;
	room = (__s64)b->burst_bytes * CREDIT_PER_BYTE - b->credit;
	if (room > 0 && elapsed_ns < b->fill_ns) {
		gain = b->rate_bytes_per_s * elapsed_ns;
		if (gain < (__u64)room)
			room = (__s64)gain;
	}
	__sync_fetch_and_add(&b->credit, room);
}

/* Charges first and looks at what was there: two CPUs cannot pass on the same last credit. */
__noinline int charge_bucket(struct meter *m, __u32 bytes, __u64 now_ns)
{
	__s64 cost = (__s64)bytes * CREDIT_PER_BYTE;
	__s64 credit;

	if (!m)
		return 0;
	refill(&m->bucket, now_ns);
	credit = __sync_fetch_and_add(&m->bucket.credit, -cost);
	if (credit > (m->mode == MODE_DROP ? cost : 0))
		return 1;
	__sync_fetch_and_add(&m->bucket.credit, cost);
	return 0;
}

INLINE void count(struct traffic *t, __u32 bytes, int passes)
{
	__sync_fetch_and_add(passes ? &t->bytes : &t->dropped_bytes, bytes);
	__sync_fetch_and_add(passes ? &t->packets : &t->dropped_packets, 1);
}

INLINE int charge_meter(struct meter *m, __u32 bytes, __u64 now_ns)
{
	return m->mode == MODE_ACCOUNT || charge_bucket(m, bytes, now_ns);
}

/* Takes a charge back, as far as the bucket has room for it. */
INLINE void give_back(struct meter *m, __u32 bytes)
{
	if (m->mode != MODE_ACCOUNT)
		__sync_fetch_and_add(&m->bucket.credit, (__s64)bytes * CREDIT_PER_BYTE);
}

#endif
