/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The contract of kernel and Python. bpf/layout.py mirrors every struct here, and a test holds the mirror to the
 * BTF of the compiled objects.
 *
 * Units: bytes are bytes on the wire (Ethernet header included, headers of every segment of a super-packet
 * included); times are CLOCK_MONOTONIC nanoseconds; credit is in units of 1e-9 byte, so that rate (bytes/s) times
 * elapsed time (ns) is credit exactly: the bucket never divides and never rounds.
 *
 * Nothing overflows. User space keeps burst_bytes <= 2^32 and computes fill_ns, the time after which the bucket is
 * surely full; rate * elapsed is evaluated only when elapsed < fill_ns, where it is below (burst + deepest debt) * 1e9.
 */
#ifndef RECLAIM_H
#define RECLAIM_H

#define CREDIT_PER_BYTE 1000000000LL
#define DEEPEST_DEBT_BYTES 67108864 /* the most that a packet is charged: of more, part would be forgiven */
#define FIRST_PORT 10000 /* interface number of the first host's port; those of all hosts follow each other */
#define MAX_FLOWS 256 /* flows a host can have under enforcement at once */
#define LIVE_BITS 7
#define LIVE_CONNECTIONS (1 << LIVE_BITS) /* established connections that a draining host knows without asking */

/* Class of service, paper A section VII-A; also the index into the class counters. */
enum reclaim_class {
	CLASS_EMERGENCY = 0, /* EF */
	CLASS_PLANNED = 1, /* AF41: migration */
	CLASS_PRESYNC = 2, /* CS1: migration */
	CLASS_RESEARCH = 3, /* BE: everything else */
	CLASSES = 4,
};

/* The code points of the testbed's own classes. */
#define DSCP_EMERGENCY 46
#define DSCP_PLANNED 34
#define DSCP_PRESYNC 8

/* What a bucket does to a packet. */
enum reclaim_mode {
	MODE_ACCOUNT = 0, /* counts only */
	MODE_DEBT = 1, /* passes while credit > 0, then charges: at most one super-packet of debt */
	MODE_DROP = 2, /* paper A, section VII-C: passes if and only if the tokens exceed the packet's length */
};

/* The kill-switch. */
enum switch_mode {
	SWITCH_OFF = 0,
	SWITCH_DRAIN = 1, /* no new inbound connection; what is established lives */
	SWITCH_ISOLATE = 2, /* only the coordinator is heard */
};

/* A flow, as the packet names it: addresses and ports in network byte order. */
struct flow_key {
	__u32 saddr;
	__u32 daddr;
	__u16 sport;
	__u16 dport;
	__u8 proto;
	__u8 zero[3];
};

struct bucket {
	__s64 credit; /* 1e-9 byte; negative is debt */
	__u64 last_ns; /* when credit was last true */
	__u64 rate_bytes_per_s;
	__u64 burst_bytes; /* credit's ceiling */
	__u64 fill_ns; /* ceil((burst + deepest debt) * 1e9 / rate); all ones if the rate is 0 */
};

struct traffic {
	__u64 bytes; /* let through */
	__u64 packets;
	__u64 dropped_bytes;
	__u64 dropped_packets;
};

/*
 * A bucket and its counters, in memory that user space maps: one slot of the array of meters for each flow, and one for
 * the host's aggregate of the migration classes. The programs touch credit, last_ns and traffic with atomic operations
 * only; user space stores class, mode and rate (bpf/meters.py says in which order), so that a new grant loses nothing.
 */
struct meter {
	__u32 traffic_class;
	__u8 mode;
	__u8 in_use; /* user space's own mark: this slot belongs to a flow */
	__u8 migrations_only; /* of the aggregate: checkpoints are below research, and not charged to it */
	__u8 zero;
	struct bucket bucket;
	struct traffic traffic;
};

/*
 * A port of a switch, on the switch's side: which addresses its host has, and what it may send. The switch's side is in the
 * fabric's namespace, out of the host's reach.
 */
struct port {
	__u8 mac[6];
	__u8 checkpoints_apart; /* of the testbed's own classes, those but theirs are held to the share */
	__u8 zero;
	__u32 ipv4; /* network byte order */
	__u32 zero2;
	struct meter own; /* the testbed's own classes and ARP, together */
	struct meter link; /* everything */
	struct traffic forged; /* dropped: not by the host's own addresses */
};

/*
 * An established inbound TCP connection, as a draining host remembers it. A slot is taken once, by whoever finds
 * `peer` zero, and is given up only when user space sets the switch; while `local` is still zero it matches nothing.
 */
struct live_connection {
	__u64 peer; /* source address << 32 | source port << 16 | destination port; 0: free */
	__u32 local; /* destination address */
	__u32 zero;
};

/* The one entry of the kill-switch map. User space clears `live`, writes the times, and the mode last. */
struct kill_switch {
	__u32 mode;
	__u32 coordinator; /* network byte order; 0: none */
	__u64 set_at_ns;
	__u64 isolate_at_ns; /* drain becomes isolate here, whoever is dead by then; 0: never */
	__u64 first_drop_ns; /* 0: none yet */
	__u64 dropped_packets;
	__u64 dropped_bytes;
	struct live_connection live[LIVE_CONNECTIONS];
};

#endif
