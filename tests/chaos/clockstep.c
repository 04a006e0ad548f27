/* A wall clock that can be stepped while programs run (LD_PRELOAD): $DQ_CLOCKSTEP_FILE holds 64 bits,
 * nanoseconds that are added to it. The monotonic clock goes on undisturbed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static volatile const int64_t *step_ns;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DQ_CLOCKSTEP_FILE");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        step_ns = map;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    int result = real_clock_gettime ? real_clock_gettime(which, now)
                                    : (int)syscall(SYS_clock_gettime, which, now);
    if (!result && step_ns && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + *step_ns;
        now->tv_sec += ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
        if (now->tv_nsec < 0) {
            now->tv_nsec += 1000000000;
            now->tv_sec--;
        }
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
