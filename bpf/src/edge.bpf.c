// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What leaves a real machine: egress.bpf.c, for the sockets of one control group and no others. */
#define GUESTS
#include "egress.bpf.c"
