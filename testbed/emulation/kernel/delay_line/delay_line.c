// SPDX-License-Identifier: Apache-2.0
/*
 * The delay line: one process that holds the frames of all delayed cables of a campus for as long as each cable says, and
 * loses some.
 *
 * A delayed cable is cut: two veth pairs, whose inner ends lie in this process's network namespace. One packet socket hears what
 * comes in at all inner ends, and what is due is sent out of the other end of its cable. (A socket for each end would cost the
 * kernel some 10 ms each to close.) PACKET_VNET_HDR carries what the kernel knows of a
 * frame beside its bytes (checksum still to be made, size of its segments), so that a super-packet of 64 KiB passes whole, with
 * one system call on either side; PACKET_IGNORE_OUTGOING keeps the socket from hearing what is sent through it.
 *
 * A frame's time begins when the kernel put it into the veth (SO_TIMESTAMPNS), not when this process got round to reading it:
 * so being late in reading costs nothing, as long as it is less than the delay. A frame's lateness is the time it was sent
 * less the time it was due; it goes into a histogram in shared memory, by which a run is judged.
 *
 * Loss is drawn for each segment: a super-packet that loses some is sent on as its runs of survivors, each a smaller
 * super-packet with its own sequence number, lengths and checksums, as a receiver would have seen them on a wire.
 *
 * Order is kept: a frame is due no earlier than the one before it in its direction.
 *
 * delay_line STATISTICS_FILE MAX_CABLES PARENT_PID [NAMESPACE]: prints "ready" in a network namespace of its own, or in that of
 * a file, where one before it ended and left the cables. Then it answers each line of standard input with one line:
 *   cable N A B                                     "ok": cable N (from 0, in order) lies between interfaces A and B
 *   set N SIDE DELAY JITTER LOSS LIMIT              what `get` says; SIDE 0 is from A to B, 1 from B to A; DELAY and JITTER in
 *                                                   ns, LOSS in 2^-32, LIMIT of what waits in bytes
 *   get N SIDE                                      "DELAY JITTER LOSS LIMIT", those in force
 * or with "error ...". It ends at the end of its input, and when PARENT_PID does (0: not then).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4 /* Linux 6.2 */
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#define VNET_BYTES ((int)sizeof(struct virtio_net_hdr))
#define TAG_BYTES 4
#define ROOM_BYTES (VNET_BYTES + TAG_BYTES + 14 + 2 * TAG_BYTES + 65536) /* the largest super-packet */
#define BATCH 16          /* frames read by one system call */
#define ROUNDS 4          /* such calls before commands have their turn */
#define RECEIVE_BYTES (256 << 20) /* of the socket's queue, counted as the kernel does, with overhead */
#define MAX_IFINDEX (1 << 21)
#define DELAY_BUCKETS 124 /* as bpf/src/observe.h has them */

/* In shared memory, one for no direction in particular, then one for each; testbed/emulation/kernel/delay_line/process.py reads it. */
struct statistics {
	uint64_t frames;    /* sent on */
	uint64_t late;      /* of those, sent later than due by more than a tenth of the delay */
	uint64_t lost;      /* segments that the cable was to lose */
	uint64_t overflown; /* frames that found more waiting than the limit */
	uint64_t unheard;   /* frames that found the socket's queue full: of no direction in particular */
	uint64_t refused;   /* frames that the kernel would not send */
	uint64_t waiting;   /* bytes, now */
	uint64_t lateness[DELAY_BUCKETS]; /* frames by microseconds: the buckets of bpf/src/observe.h */
};

struct frame {
	int64_t due_ns;
	uint64_t number; /* of arrival: the order among frames that are due at once */
	int64_t delay_ns; /* that the cable had then */
	uint32_t direction;
	uint32_t length; /* with the vnet header */
	uint8_t data[];
};

struct direction {
	int out; /* interface */
	int64_t delay_ns, jitter_ns, last_due_ns;
	uint32_t loss;
	uint64_t limit_bytes;
	struct statistics *statistics;
};

static struct direction *directions;
static struct statistics *whole;
static uint32_t direction_at[MAX_IFINDEX]; /* by interface at which its frames come in: its number plus 1 */
static uint32_t cables, most_cables;
static struct frame **heap; /* by time due */
static size_t heap_count, heap_room;
static uint64_t arrivals, chance;
static int poller, timer, packets;
static int64_t armed_ns;
static uint8_t scratch[BATCH][ROOM_BYTES] __attribute__((aligned(16)));

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static uint32_t draw(void) /* xorshift64*, its upper half */
{
	chance ^= chance >> 12;
	chance ^= chance << 25;
	chance ^= chance >> 27;
	return (chance * 0x2545F4914F6CDD1DULL) >> 32;
}

/* ------------------------------------------------------------ what waits */

static int before(const struct frame *a, const struct frame *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void push(struct frame *frame)
{
	size_t i = heap_count++;

	if (heap_count > heap_room) {
		heap_room = heap_room ? 2 * heap_room : 4096;
		heap = realloc(heap, heap_room * sizeof(*heap));
		if (!heap)
			abort();
	}
	for (; i && before(frame, heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = frame;
}

static struct frame *pop(void)
{
	struct frame *first = heap[0], *last = heap[--heap_count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < heap_count) {
		if (child + 1 < heap_count && before(heap[child + 1], heap[child]))
			child++;
		if (!before(heap[child], last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

static unsigned bucket_of(int64_t late_ns)
{
	int64_t us = late_ns / 1000;
	uint32_t value = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : us;
	unsigned octave = 31 - __builtin_clz(value | 1);

	return value < 4 ? value : (octave - 1) * 4 + ((value >> (octave - 2)) & 3);
}

static void send_on(struct frame *frame)
{
	struct direction *d = &directions[frame->direction];
	struct statistics *s = d->statistics;
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = d->out};
	int64_t late_ns;

	s->waiting -= frame->length;
	if (sendto(packets, frame->data, frame->length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0) {
		s->refused++;
	} else {
		late_ns = clock_ns(CLOCK_MONOTONIC) - frame->due_ns;
		s->frames++;
		s->late += frame->delay_ns && late_ns > frame->delay_ns / 10;
		s->lateness[bucket_of(late_ns)]++;
	}
	free(frame);
}

static void send_due(void)
{
	while (heap_count && heap[0]->due_ns <= clock_ns(CLOCK_MONOTONIC))
		send_on(pop());
}

static void arm(void)
{
	struct itimerspec at = {0};
	int64_t due_ns = heap_count ? heap[0]->due_ns : 0;

	if (due_ns == armed_ns)
		return;
	armed_ns = due_ns;
	at.it_value.tv_sec = due_ns / NS_PER_S;
	at.it_value.tv_nsec = due_ns % NS_PER_S;
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

/* ------------------------------------------------------------ what comes in */

static void hold(uint32_t number, int64_t arrived_ns, const uint8_t *head, uint32_t head_bytes, const uint8_t *rest,
		 uint32_t rest_bytes)
{
	struct direction *d = &directions[number];
	uint32_t length = head_bytes + rest_bytes;
	int64_t due_ns = arrived_ns + d->delay_ns;
	struct frame *frame;

	if (d->statistics->waiting + length > d->limit_bytes) {
		d->statistics->overflown++;
		return;
	}
	if (d->jitter_ns)
		due_ns += (int64_t)(((__int128)(2 * d->jitter_ns) * draw()) >> 32) - d->jitter_ns;
	if (due_ns < arrived_ns)
		due_ns = arrived_ns;
	if (due_ns < d->last_due_ns)
		due_ns = d->last_due_ns;
	d->last_due_ns = due_ns;
	frame = malloc(sizeof(*frame) + length);
	if (!frame) {
		d->statistics->overflown++;
		return;
	}
	*frame = (struct frame){due_ns, arrivals++, d->delay_ns, number, length};
	memcpy(frame->data, head, head_bytes);
	memcpy(frame->data + head_bytes, rest, rest_bytes);
	d->statistics->waiting += length;
	push(frame);
}

static uint32_t sum_words(const uint8_t *at, uint32_t bytes, uint32_t sum)
{
	for (; bytes > 1; at += 2, bytes -= 2)
		sum += at[0] << 8 | at[1];
	return bytes ? sum + (at[0] << 8) : sum;
}

static uint16_t folded(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = value >> 8;
	at[1] = value;
}

/* Where the headers of a super-packet's segments lie, from the start of its Ethernet header; 0 if it is none that is known. */
struct headers {
	uint32_t network, transport, payload;
	uint8_t protocol;
	int is_v6;
};

static int find_headers(const uint8_t *eth, uint32_t bytes, const struct virtio_net_hdr *vnet, struct headers *h)
{
	uint32_t at = 12, type;

	while (at + 2 <= bytes && ((type = eth[at] << 8 | eth[at + 1]) == ETH_P_8021Q || type == ETH_P_8021AD))
		at += TAG_BYTES;
	h->network = at + 2;
	h->transport = vnet->csum_start;
	if (!(vnet->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || h->transport + 20 > bytes || h->transport < h->network + 20)
		return 0;
	switch (vnet->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
		h->protocol = IPPROTO_TCP;
		h->payload = h->transport + (eth[h->transport + 12] >> 4) * 4;
		break;
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		h->protocol = IPPROTO_UDP;
		h->payload = h->transport + 8;
		break;
	default:
		return 0;
	}
	h->is_v6 = eth[h->network] >> 4 == 6;
	return vnet->gso_size && h->payload < bytes;
}

/* Makes `head` that of segments `first` to `last` (not included) of `all`, whose payload begins at `skipped` and has `bytes`. */
static void rewrite(uint8_t *head, const struct headers *h, uint32_t first, int is_end, uint32_t skipped, uint32_t bytes)
{
	struct virtio_net_hdr *vnet = (struct virtio_net_hdr *)head;
	uint8_t *eth = head + VNET_BYTES, *ip = eth + h->network, *l4 = eth + h->transport;
	uint32_t l4_bytes = h->payload - h->transport + bytes, sum = h->protocol + l4_bytes, sequence;

	if (bytes <= vnet->gso_size) {
		vnet->gso_type = VIRTIO_NET_HDR_GSO_NONE;
		vnet->gso_size = 0;
	}
	if (h->is_v6) {
		put16(ip + 4, h->transport - h->network - 40 + l4_bytes);
		sum = sum_words(ip + 8, 32, sum);
	} else {
		put16(ip + 2, h->transport - h->network + l4_bytes);
		put16(ip + 4, (ip[4] << 8 | ip[5]) + first);
		put16(ip + 10, 0);
		put16(ip + 10, ~folded(sum_words(ip, h->transport - h->network, 0)));
		sum = sum_words(ip + 12, 8, sum);
	}
	if (h->protocol == IPPROTO_TCP) {
		memcpy(&sequence, l4 + 4, 4);
		sequence = htonl(ntohl(sequence) + skipped);
		memcpy(l4 + 4, &sequence, 4);
		if (!is_end)
			l4[13] &= ~0x09; /* FIN and PSH are the last segment's */
		if (first)
			l4[13] &= ~0x80; /* CWR is the first's */
		put16(l4 + 16, folded(sum)); /* of the pseudo-header: the rest is still to be made */
	} else {
		put16(l4 + 4, l4_bytes);
		put16(l4 + 6, folded(sum));
	}
}

static void lose_and_hold(uint32_t number, int64_t arrived_ns, const uint8_t *data, uint32_t length)
{
	struct direction *d = &directions[number];
	const struct virtio_net_hdr *vnet = (const struct virtio_net_hdr *)data;
	const uint8_t *payload;
	uint8_t head[256];
	struct headers h;
	uint32_t size, bytes, head_bytes, segments, i, first, end;

	if (!vnet->gso_type || !find_headers(data + VNET_BYTES, length - VNET_BYTES, vnet, &h) ||
	    VNET_BYTES + h.payload > sizeof(head)) {
		if (draw() < d->loss)
			d->statistics->lost++;
		else
			hold(number, arrived_ns, data, length, NULL, 0);
		return;
	}
	head_bytes = VNET_BYTES + h.payload;
	payload = data + head_bytes;
	size = vnet->gso_size;
	bytes = length - head_bytes;
	segments = (bytes + size - 1) / size;
	for (i = 0; i < segments;) {
		if (draw() < d->loss) {
			d->statistics->lost++;
			i++;
			continue;
		}
		for (first = i++; i < segments && draw() >= d->loss; i++)
			;
		end = i < segments ? i * size : bytes;
		if (first == 0 && end == bytes) {
			hold(number, arrived_ns, data, length, NULL, 0);
			return;
		}
		d->statistics->lost += i < segments; /* by the draw that ended the run */
		memcpy(head, data, head_bytes);
		rewrite(head, &h, first, end == bytes, first * size, end - first * size);
		hold(number, arrived_ns, head, head_bytes, payload + first * size, end - first * size);
		i++;
	}
}

/* Puts a tag that the kernel took out of the frame back into it: returns where the frame begins now, TAG_BYTES earlier. */
static uint8_t *tagged(uint8_t *data, const struct tpacket_auxdata *aux)
{
	struct virtio_net_hdr vnet;
	uint8_t *eth;

	memcpy(&vnet, data, VNET_BYTES);
	if (vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		vnet.csum_start += TAG_BYTES;
	if (vnet.gso_type)
		vnet.hdr_len += TAG_BYTES;
	memmove(data + VNET_BYTES - TAG_BYTES, data + VNET_BYTES, 12);
	data -= TAG_BYTES;
	memcpy(data, &vnet, VNET_BYTES);
	eth = data + VNET_BYTES;
	put16(eth + 12, aux->tp_status & TP_STATUS_VLAN_TPID_VALID ? aux->tp_vlan_tpid : ETH_P_8021Q);
	put16(eth + 14, aux->tp_vlan_tci);
	return data;
}

static void take(struct msghdr *message, uint32_t length, int64_t real_less_monotonic_ns)
{
	uint32_t ifindex = ((struct sockaddr_ll *)message->msg_name)->sll_ifindex, number;
	uint8_t *data = message->msg_iov->iov_base;
	struct tpacket_auxdata aux = {0};
	struct virtio_net_hdr *vnet;
	struct cmsghdr *c;
	struct timespec at;
	int64_t now_ns = clock_ns(CLOCK_MONOTONIC), arrived_ns = now_ns;

	if (length < (uint32_t)VNET_BYTES + ETH_HLEN || message->msg_flags & MSG_TRUNC)
		return;
	if (ifindex >= MAX_IFINDEX || !direction_at[ifindex])
		return;
	number = direction_at[ifindex] - 1;
	for (c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
			memcpy(&aux, CMSG_DATA(c), sizeof(aux));
		} else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
			memcpy(&at, CMSG_DATA(c), sizeof(at));
			arrived_ns = at.tv_sec * NS_PER_S + at.tv_nsec - real_less_monotonic_ns;
		}
	}
	if (arrived_ns > now_ns || arrived_ns < now_ns - NS_PER_S) /* the wall clock was set meanwhile */
		arrived_ns = now_ns;
	if (aux.tp_status & TP_STATUS_VLAN_VALID) {
		data = tagged(data, &aux);
		length += TAG_BYTES;
	}
	vnet = (struct virtio_net_hdr *)data;
	vnet->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
	if (directions[number].loss)
		lose_and_hold(number, arrived_ns, data, length);
	else
		hold(number, arrived_ns, data, length, NULL, 0);
}

static void receive(void)
{
	static uint8_t control[BATCH][256] __attribute__((aligned(16)));
	struct sockaddr_ll from[BATCH];
	struct mmsghdr messages[BATCH];
	struct iovec pieces[BATCH];
	struct tpacket_stats heard;
	socklen_t bytes = sizeof(heard);
	int64_t real_less_monotonic_ns;
	int round, count = BATCH, i;

	for (round = 0; round < ROUNDS && count == BATCH; round++) {
		for (i = 0; i < BATCH; i++) {
			/* room before the frame, for a tag */
			pieces[i] = (struct iovec){scratch[i] + TAG_BYTES, ROOM_BYTES - TAG_BYTES};
			messages[i].msg_hdr = (struct msghdr){
				.msg_name = &from[i],
				.msg_namelen = sizeof(from[i]),
				.msg_iov = &pieces[i],
				.msg_iovlen = 1,
				.msg_control = control[i],
				.msg_controllen = sizeof(control[i]),
			};
		}
		count = recvmmsg(packets, messages, BATCH, MSG_DONTWAIT, NULL);
		real_less_monotonic_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
		for (i = 0; i < count; i++)
			take(&messages[i].msg_hdr, messages[i].msg_len, real_less_monotonic_ns);
		send_due();
	}
	if (!getsockopt(packets, SOL_PACKET, PACKET_STATISTICS, &heard, &bytes))
		whole->unheard += heard.tp_drops;
}

/* ------------------------------------------------------------ what it is told */

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void set(int level, int option, int value, const char *what)
{
	if (setsockopt(packets, level, option, &value, sizeof(value)))
		fail(what);
}

/* Hears all interfaces that this namespace will have. */
static void listen_everywhere(void)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};

	packets = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (packets < 0)
		fail("packet socket");
	set(SOL_PACKET, PACKET_VNET_HDR, 1, "PACKET_VNET_HDR");
	set(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
	set(SOL_PACKET, PACKET_AUXDATA, 1, "PACKET_AUXDATA");
	set(SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS");
	set(SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES, "SO_RCVBUFFORCE");
	set(SOL_SOCKET, SO_SNDBUFFORCE, RECEIVE_BYTES, "SO_SNDBUFFORCE");
	if (bind(packets, (struct sockaddr *)&at, sizeof(at)))
		fail("bind");
}

static void answer(const char *format, ...)
{
	char line[256];
	va_list arguments;
	int bytes;

	va_start(arguments, format);
	bytes = vsnprintf(line, sizeof(line) - 1, format, arguments);
	va_end(arguments);
	line[bytes] = '\n';
	if (write(STDOUT_FILENO, line, bytes + 1) != bytes + 1)
		exit(1);
}

static void add_cable(unsigned number, int a, int b)
{
	if (number != cables || number >= most_cables || a <= 0 || b <= 0 || a >= MAX_IFINDEX || b >= MAX_IFINDEX) {
		answer("error cable %u between %d and %d: the next is %u, of at most %u", number, a, b, cables, most_cables);
		return;
	}
	direction_at[a] = 2 * number + 1;
	directions[2 * number].out = b;
	direction_at[b] = 2 * number + 2;
	directions[2 * number + 1].out = a;
	cables++;
	answer("ok");
}

static void obey(const char *line)
{
	unsigned number, side, loss;
	long long delay_ns, jitter_ns, limit_bytes;
	struct direction *d;
	int a, b;

	if (sscanf(line, "cable %u %d %d", &number, &a, &b) == 3) {
		add_cable(number, a, b);
		return;
	}
	if (sscanf(line, "%*s %u %u", &number, &side) != 2 || number >= cables || side > 1) {
		answer("error %s", line);
		return;
	}
	d = &directions[2 * number + side];
	if (sscanf(line, "set %*u %*u %lld %lld %u %lld", &delay_ns, &jitter_ns, &loss, &limit_bytes) == 4) {
		d->delay_ns = delay_ns;
		d->jitter_ns = jitter_ns;
		d->loss = loss;
		d->limit_bytes = limit_bytes;
	} else if (strncmp(line, "get ", 4)) {
		answer("error %s", line);
		return;
	}
	answer("%lld %lld %u %llu", (long long)d->delay_ns, (long long)d->jitter_ns, d->loss,
	       (unsigned long long)d->limit_bytes);
}

static void read_commands(void)
{
	static char text[4096];
	static size_t filled;
	ssize_t got = read(STDIN_FILENO, text + filled, sizeof(text) - filled);
	char *begin = text, *end;

	if (got <= 0)
		exit(0);
	filled += got;
	while ((end = memchr(begin, '\n', text + filled - begin))) {
		*end = 0;
		obey(begin);
		begin = end + 1;
	}
	filled -= begin - text;
	memmove(text, begin, filled);
	if (filled == sizeof(text))
		exit(1);
}

static struct statistics *share(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600); /* one that was there counts on */
	void *memory;

	if (fd < 0 || ftruncate(fd, bytes))
		fail(path);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	close(fd);
	return memory;
}

int main(int count, char **arguments)
{
	enum { TIMER, COMMANDS, PACKETS };
	struct sched_param first = {.sched_priority = 1};
	struct epoll_event events[4], event = {.events = EPOLLIN};
	uint64_t expired;
	pid_t parent;
	int ready, i, namespace;

	if (count != 4 && count != 5) {
		fprintf(stderr, "usage: delay_line STATISTICS_FILE MAX_CABLES PARENT_PID [NAMESPACE]\n");
		return 2;
	}
	most_cables = strtoul(arguments[2], NULL, 10);
	parent = strtol(arguments[3], NULL, 10);
	if (parent && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
		return 1;
	signal(SIGINT, SIG_IGN); /* typed at the campus's terminal: the campus ends this */
	signal(SIGPIPE, SIG_IGN);
	if (count == 4 && unshare(CLONE_NEWNET))
		fail("unshare(CLONE_NEWNET)");
	if (count == 5) {
		namespace = open(arguments[4], O_RDONLY | O_CLOEXEC);
		if (namespace < 0 || setns(namespace, CLONE_NEWNET))
			fail(arguments[4]);
		close(namespace);
	}
	/* at once when it is due, before whatever else wants the processor; where that is not allowed, late, and counted */
	sched_setscheduler(0, SCHED_FIFO, &first);
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
	if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
		fail("getrandom");
	chance |= 1;
	whole = share(arguments[1], (1 + 2 * most_cables) * sizeof(*whole));
	directions = calloc(2 * most_cables, sizeof(*directions));
	if (!directions)
		fail("memory");
	for (i = 0; i < (int)(2 * most_cables); i++) {
		directions[i].statistics = &whole[1 + i];
		directions[i].statistics->waiting = 0;
	}
	poller = epoll_create1(EPOLL_CLOEXEC);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (poller < 0 || timer < 0)
		fail("epoll and timerfd");
	event.data.u32 = TIMER;
	epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
	event.data.u32 = COMMANDS;
	if (epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event))
		fail("standard input");
	listen_everywhere();
	event.data.u32 = PACKETS;
	if (epoll_ctl(poller, EPOLL_CTL_ADD, packets, &event))
		fail("epoll of the packet socket");
	answer("ready");
	for (;;) {
		arm();
		ready = epoll_wait(poller, events, 4, -1);
		send_due();
		for (i = 0; i < ready; i++) {
			if (events[i].data.u32 == TIMER) {
				armed_ns = 0;
				if (read(timer, &expired, sizeof(expired)) < 0 && errno != EAGAIN)
					fail("timer");
			} else if (events[i].data.u32 == COMMANDS) {
				read_commands();
			} else {
				receive();
			}
		}
		send_due();
	}
}
