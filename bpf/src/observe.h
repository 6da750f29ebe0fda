/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the observer counts for one network namespace. bpf/layout.py mirrors it.
 *
 * Histograms are of microseconds, four buckets an octave (values below 4 have their own): a value read from one is at most a
 * quarter too large.
 */
#ifndef OBSERVE_H
#define OBSERVE_H

#define DROP_REASONS 256 /* by the kernel's enum skb_drop_reason; the last one counts all beyond (subsystems number from 65536) */
#define DELAY_BUCKETS 124 /* of 32-bit microseconds */

struct observed {
	__u64 retransmitted; /* TCP segments sent again */
	__u64 dropped[DROP_REASONS]; /* packets; a super-packet counts its segments */
	__u64 round_trip_us[DELAY_BUCKETS]; /* TCP's smoothed round trip, at each segment that arrives */
	__u64 run_delay_us[DELAY_BUCKETS]; /* from a task's waking until a processor takes it */
};

#endif
