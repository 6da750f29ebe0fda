/*
 * A storm of SYNs at a host's interface, and the answers that come back, each with its time.
 *
 * Every SYN has a sequence number of its own, so its SYN-ACK names it. The host answers statelessly (SYN cookies), so one SYN
 * has one answer or none. A SYN's time is read just before it is sent; its answer's is the kernel's stamp on arrival.
 * A round runs while `round` in the shared memory is ahead of `done`; the other process then reads what `settle` wrote.
 *
 * usage: syn_storm FILE INTERFACE DESTINATION_MAC SOURCE_IPV4 DESTINATION_IPV4 PORT
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#define MAX_SYNS (1u << 20) /* of a round; then the storm is over */
#define IDLE_NS 100000
#define LAST_ANSWERS_NS 1000000 /* how long after the storm answers are waited for */
#define STORM_NICE (-15)
#define FIRST_PORT 1024
#define PORTS (65536 - FIRST_PORT)

/* Times in CLOCK_MONOTONIC ns. The words before `begun` are the other process's. */
struct shared {
	uint64_t round;
	uint64_t stop; /* the round that is to end */
	uint64_t act_ns; /* when the owner acted */
	uint64_t returned_ns; /* when the owner's call was over */
	uint64_t pause_ns; /* from one SYN to the next, at least */
	uint64_t begun; /* the round that runs, or ran */
	uint64_t done; /* the round whose result stands below */
	uint64_t sent; /* grows while the round runs */
	uint64_t answered;
	uint64_t let_in_after_return; /* SYNs that were sent after the call was over, and were answered */
	uint64_t missed; /* SYNs without an answer, before the last that had one */
	uint64_t last_answer_ns;
	uint64_t refused_ns; /* when the first SYN after it was sent; 0: none was */
	uint64_t let_in_ns; /* when the last SYN that got in was sent */
	uint64_t is_full;
};

static struct {
	uint64_t sent_ns, answered_ns;
} syns[MAX_SYNS];

static struct {
	struct ether_header ether;
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed)) frame;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static uint32_t sum16(const void *data, size_t bytes, uint32_t sum)
{
	const uint8_t *at = data;

	for (; bytes > 1; bytes -= 2, at += 2)
		sum += at[0] << 8 | at[1];
	return sum;
}

static uint16_t folded(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

static void address(uint32_t n)
{
	frame.tcp.source = htons(FIRST_PORT + n % PORTS);
	frame.tcp.seq = htonl(n);
	frame.tcp.check = 0;
	frame.tcp.check = folded(sum16(&frame.tcp, sizeof(frame.tcp),
				       sum16(&frame.ip.saddr, 8, IPPROTO_TCP + sizeof(frame.tcp))));
}

static void prepare(char **argv, int fd, const char *interface)
{
	struct ifreq request = {};
	unsigned mac[6];

	strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
	if (ioctl(fd, SIOCGIFHWADDR, &request))
		fail("hardware address");
	memcpy(frame.ether.ether_shost, request.ifr_hwaddr.sa_data, 6);
	if (sscanf(argv[3], "%x:%x:%x:%x:%x:%x", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
		fail("DESTINATION_MAC");
	for (int i = 0; i < 6; i++)
		frame.ether.ether_dhost[i] = mac[i];
	frame.ether.ether_type = htons(ETHERTYPE_IP);
	frame.ip = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP,
				   .tot_len = htons(sizeof(frame.ip) + sizeof(frame.tcp)) };
	if (inet_pton(AF_INET, argv[4], &frame.ip.saddr) != 1 || inet_pton(AF_INET, argv[5], &frame.ip.daddr) != 1)
		fail("SOURCE_IPV4 DESTINATION_IPV4");
	frame.ip.check = folded(sum16(&frame.ip, sizeof(frame.ip), 0));
	frame.tcp.dest = htons(atoi(argv[6]));
	frame.tcp.doff = 5;
	frame.tcp.syn = 1;
	frame.tcp.window = htons(64000);
}

/* Takes what has arrived; `first` is the round's first sequence number, `count` how many it has sent. */
static void take_answers(int fd, struct shared *s, uint32_t first, uint32_t count, uint64_t to_monotonic_ns)
{
	static char data[256], control[256];
	struct iovec part = { data, sizeof(data) };

	for (;;) {
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
					  .msg_controllen = sizeof(control) };
		const struct iphdr *ip = (void *)(data + sizeof(struct ether_header));
		const struct tcphdr *tcp = (void *)(ip + 1);
		ssize_t bytes = recvmsg(fd, &message, MSG_DONTWAIT);
		uint32_t n;

		if (bytes < 0)
			return;
		if (bytes < (ssize_t)sizeof(frame) || ip->protocol != IPPROTO_TCP || ip->ihl != 5 ||
		    ip->saddr != frame.ip.daddr || tcp->source != frame.tcp.dest || !tcp->ack)
			continue;
		n = ntohl(tcp->ack_seq) - 1 - first;
		if (n >= count || syns[n].answered_ns || tcp->rst)
			continue;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
			if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
				struct timespec t;

				memcpy(&t, CMSG_DATA(c), sizeof(t));
				syns[n].answered_ns = (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec + to_monotonic_ns;
			}
		s->answered += syns[n].answered_ns != 0;
	}
}

static void settle(struct shared *s, uint32_t count)
{
	uint32_t last = count;

	for (uint32_t n = 0; n < count; n++) {
		if (!syns[n].answered_ns)
			continue;
		last = n;
		if (syns[n].answered_ns > s->last_answer_ns)
			s->last_answer_ns = syns[n].answered_ns;
		s->let_in_after_return += syns[n].sent_ns > s->returned_ns;
	}
	for (uint32_t n = 0; last < count && n < last; n++)
		s->missed += !syns[n].answered_ns;
	if (last < count)
		s->let_in_ns = syns[last].sent_ns;
	if (last + 1 < count)
		s->refused_ns = syns[last + 1].sent_ns;
}

static void play(int fd, struct shared *s, uint64_t round)
{
	static uint32_t first;
	uint64_t to_monotonic_ns = clock_ns(CLOCK_MONOTONIC) - clock_ns(CLOCK_REALTIME);
	uint64_t over_ns;
	uint32_t count = 0;

	memset(&s->sent, 0, sizeof(*s) - offsetof(struct shared, sent));
	__atomic_store_n(&s->begun, round, __ATOMIC_RELEASE);
	while (__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE) != round) {
		if (count == MAX_SYNS) {
			s->is_full = 1;
			break;
		}
		address(first + count);
		syns[count].answered_ns = 0;
		syns[count].sent_ns = clock_ns(CLOCK_MONOTONIC);
		if (send(fd, &frame, sizeof(frame), 0) < 0 && errno != ENOBUFS)
			fail("send");
		__atomic_store_n(&s->sent, ++count, __ATOMIC_RELEASE);
		take_answers(fd, s, first, count, to_monotonic_ns);
		if (s->pause_ns) { /* asleep: what the owner started has this processor, too */
			uint64_t next_ns = syns[count - 1].sent_ns + s->pause_ns;
			struct timespec next = { next_ns / 1000000000u, next_ns % 1000000000u };

			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		}
	}
	over_ns = clock_ns(CLOCK_MONOTONIC) + LAST_ANSWERS_NS;
	while (clock_ns(CLOCK_MONOTONIC) < over_ns)
		take_answers(fd, s, first, count, to_monotonic_ns);
	while (__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE) != round)
		usleep(IDLE_NS / 1000);
	settle(s, count);
	first += count;
	__atomic_store_n(&s->done, round, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
	int fd, file, yes = 1;
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	struct shared *s;
	pid_t parent = getppid();

	if (argc != 7) {
		fprintf(stderr, "usage: syn_storm FILE INTERFACE DESTINATION_MAC SOURCE_IPV4 DESTINATION_IPV4 PORT\n");
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 1);
	file = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, sizeof(*s)))
		fail(argv[1]);
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (s == MAP_FAILED)
		fail("map the file");
	fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_IP));
	at.sll_ifindex = if_nametoindex(argv[2]);
	if (fd < 0 || !at.sll_ifindex || bind(fd, (struct sockaddr *)&at, sizeof(at)))
		fail(argv[2]);
	if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof(yes)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof(yes)))
		fail("options of the socket");
	prepare(argv, fd, argv[2]);
	if (nice(STORM_NICE) == -1) /* on a busy machine it would be late */
		fail("nice");
	memset(syns, 0, sizeof(syns)); /* in memory before the first round */
	puts("ready");
	fflush(stdout);
	while (getppid() == parent) {
		uint64_t round = __atomic_load_n(&s->round, __ATOMIC_ACQUIRE);

		if (round > s->done)
			play(fd, s, round);
		else
			usleep(IDLE_NS / 1000);
	}
	return 0;
}
