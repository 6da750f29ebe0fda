/* What somebody wrote for HTCondor: state.bin in its directory, SIGUSR1, exit code 85. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static void ask(int number) { (void)number; asked = 1; }

int main(int argc, char **argv)
{
    char path[4096];
    unsigned long long state[2] = {0, 88172645463325252ULL}; /* step, xorshift64 */
    unsigned long long steps = strtoull(argv[1], NULL, 10);
    snprintf(path, sizeof path, "%s/state.bin", getenv("RECLAIMNET_CHECKPOINT_DIRECTORY"));
    FILE *file = fopen(path, "rb");
    if (file) { if (fread(state, sizeof state, 1, file) != 1) return 3; fclose(file); }
    struct sigaction action; memset(&action, 0, sizeof action);
    action.sa_handler = ask; sigaction(SIGUSR1, &action, NULL);
    printf("from %llu\n", state[0]); fflush(stdout);
    while (state[0] < steps) {
        state[1] ^= state[1] << 13; state[1] ^= state[1] >> 7; state[1] ^= state[1] << 17;
        state[0]++; usleep(2000);
        if (asked) {
            file = fopen(path, "wb");
            if (!file || fwrite(state, sizeof state, 1, file) != 1 || fclose(file)) return 4;
            return 85;
        }
    }
    printf("result %llu\n", state[1]);
    return argc > 2 ? atoi(argv[2]) : 0;
}
