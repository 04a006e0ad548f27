/* What a power cut would take away, remembered while programs run (LD_PRELOAD).
 *
 * For files below $DQ_POWERCUT_ROOT it appends to $DQ_POWERCUT_VAULT/events, before the call itself,
 *   what an overwrite or a truncation destroys              (WRITE: old bytes, TRUNCATE: old bytes)
 *   which names are changed by rename and unlink            (RENAME, UNLINK; the inode that loses its
 *                                                            name gets another one in the vault)
 * and around each fsync and fdatasync that succeeded        (BEGIN: size before, SYNCED after)
 * so that tests/chaos/powercut.py can bring every file back to what its last sync promised. What is
 * merely appended needs no note: it lies beyond the last synced size. A note is one write with
 * O_APPEND: a killed process leaves at most one torn one, at its end.
 *
 * $DQ_POWERCUT_LIE, a folder: syncs of what lies below it are swallowed, as by a disk that lies.
 * /proc/sys/kernel/random/boot_id is read from $DQ_POWERCUT_VAULT/boot_id: a new one after each cut.
 * Not seen: mmap (such a file counts as never synced), writes through stdio (they count as appended),
 * writes through duplicated descriptors, raw system calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE, BEGIN, SYNCED, RENAME, UNLINK };
enum { MOST_FDS = 1 << 16, FOREIGN = 0, OURS = 1, SYNCHRONOUS = 2 };

struct note {
    uint32_t magic, kind;
    uint64_t inode, at, extra, time_ms;
    uint32_t first, second; /* lengths of what follows */
};

static char root[PATH_MAX], vault[PATH_MAX - 64], lie[PATH_MAX];
static size_t root_length, lie_length;
static unsigned char known[MOST_FDS];
static __thread unsigned counter;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_truncate)(const char *, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlink)(const char *);
static int (*real_unlinkat)(int, const char *, int);

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("DQ_POWERCUT_ROOT"), *store = getenv("DQ_POWERCUT_VAULT");
    const char *liar = getenv("DQ_POWERCUT_LIE");
    char store_path[PATH_MAX];
    real_open = dlsym(RTLD_NEXT, "open");
    real_openat = dlsym(RTLD_NEXT, "openat");
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    real_truncate = dlsym(RTLD_NEXT, "truncate");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_renameat = dlsym(RTLD_NEXT, "renameat");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    if (given && store && realpath(given, root) && realpath(store, store_path) &&
        strlen(store_path) < sizeof vault) {
        strcpy(vault, store_path);
        root_length = strlen(root);
    }
    if (liar && *liar)
        lie_length = strlen(strcpy(lie, liar));
}

/* Other libraries' constructors may come before ours. */
static inline void be_ready(void)
{
    if (!real_open)
        begin();
}

static int is_below(const char *path, const char *folder, size_t length)
{
    return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* The absolute path behind a descriptor; 0 when it has none. */
static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0 && path[0] == '/';
}

/* The absolute path of a name, its folder resolved and the name itself not. */
static int absolute(int dir, const char *name, char *path)
{
    char folder[PATH_MAX], joined[2 * PATH_MAX];
    if (name[0] == '/')
        snprintf(joined, sizeof joined, "%s", name);
    else if (dir == AT_FDCWD)
        snprintf(joined, sizeof joined, "./%s", name);
    else if (path_of(dir, folder))
        snprintf(joined, sizeof joined, "%s/%s", folder, name);
    else
        return 0;
    char *slash = strrchr(joined, '/');
    const char *last = slash + 1;
    *slash = 0;
    if (!realpath(*joined ? joined : "/", folder))
        return 0;
    return snprintf(path, PATH_MAX, "%s/%s", folder, last) < PATH_MAX;
}

static void tell(uint32_t kind, uint64_t inode, uint64_t at, uint64_t extra, const void *first,
                 size_t first_length, const void *second, size_t second_length)
{
    char events[PATH_MAX + 8];
    struct timespec now;
    int saved = errno;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct note note = { 0xD951C0DE, kind, inode, at, extra,
                         (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
                         first_length, second_length };
    struct iovec parts[3] = { { &note, sizeof note },
                              { (void *)first, first_length },
                              { (void *)second, second_length } };
    snprintf(events, sizeof events, "%s/events", vault);
    int fd = syscall(SYS_openat, AT_FDCWD, events, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        syscall(SYS_writev, fd, parts, 3);
        syscall(SYS_close, fd);
    }
    errno = saved;
}

/* Bytes that are about to be destroyed. */
static void tell_old(uint32_t kind, int fd, const struct stat *stat, off_t at, off_t end)
{
    char link[64];
    if (end > stat->st_size)
        end = stat->st_size;
    if (at >= end)
        return;
    char *old = malloc(end - at);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    ssize_t length = reader < 0 || !old ? -1 : pread(reader, old, end - at, at);
    if (reader >= 0)
        syscall(SYS_close, reader);
    if (length > 0)
        tell(kind, stat->st_ino, at, stat->st_size, old, length, NULL, 0);
    free(old);
}

static int is_ours(int fd, struct stat *stat)
{
    return fd >= 0 && fd < MOST_FDS && known[fd] && !fstat(fd, stat) && S_ISREG(stat->st_mode);
}

static void before_write(int fd, size_t length, off_t at)
{
    struct stat stat;
    if (!is_ours(fd, &stat))
        return;
    if (at < 0)
        at = fcntl(fd, F_GETFL) & O_APPEND ? stat.st_size : lseek(fd, 0, SEEK_CUR);
    tell_old(WRITE, fd, &stat, at, at + length);
}

static void after_write(int fd)
{
    struct stat stat;
    if (fd < 0 || fd >= MOST_FDS || !(known[fd] & SYNCHRONOUS) || !is_ours(fd, &stat))
        return;
    uint64_t id = (uint64_t)syscall(SYS_gettid) << 32 | ++counter;
    tell(BEGIN, stat.st_ino, id, stat.st_size, NULL, 0, NULL, 0);
    tell(SYNCED, stat.st_ino, id, 0, NULL, 0, NULL, 0);
}

static void before_open(int dir, const char *name, int flags)
{
    char path[PATH_MAX];
    struct stat stat;
    if (!root_length || !(flags & O_TRUNC) || !absolute(dir, name, path) ||
        !is_below(path, root, root_length))
        return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0 && !fstat(fd, &stat) && S_ISREG(stat.st_mode))
        tell_old(TRUNCATE, fd, &stat, 0, stat.st_size);
    if (fd >= 0)
        syscall(SYS_close, fd);
}

static int after_open(int fd, int flags)
{
    char path[PATH_MAX];
    int saved = errno;
    if (fd >= 0 && fd < MOST_FDS) {
        int is_written = root_length && (flags & O_ACCMODE) != O_RDONLY;
        known[fd] = is_written && path_of(fd, path) && is_below(path, root, root_length) ? OURS : 0;
        if (known[fd] && (flags & O_DSYNC) && !is_below(path, lie, lie_length))
            known[fd] |= SYNCHRONOUS;
    }
    errno = saved;
    return fd;
}

static const char *redirected(const char *name, char *path)
{
    if (!root_length || strcmp(name, "/proc/sys/kernel/random/boot_id"))
        return name;
    snprintf(path, PATH_MAX, "%s/boot_id", vault);
    return access(path, R_OK) ? name : path;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *name, int flags, ...)
{
    MODE(flags)
    char path[PATH_MAX];
    be_ready();
    before_open(AT_FDCWD, name, flags);
    return after_open(real_open(redirected(name, path), flags, mode), flags);
}

int open64(const char *name, int flags, ...)
{
    MODE(flags)
    return open(name, flags, mode);
}

int openat(int dir, const char *name, int flags, ...)
{
    MODE(flags)
    be_ready();
    before_open(dir, name, flags);
    return after_open(real_openat(dir, name, flags, mode), flags);
}

int openat64(int dir, const char *name, int flags, ...)
{
    MODE(flags)
    return openat(dir, name, flags, mode);
}

int creat(const char *name, mode_t mode)
{
    return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

ssize_t write(int fd, const void *data, size_t length)
{
    be_ready();
    before_write(fd, length, -1);
    ssize_t done = real_write(fd, data, length);
    after_write(fd);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at)
{
    be_ready();
    before_write(fd, length, at);
    ssize_t done = real_pwrite(fd, data, length, at);
    after_write(fd);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t at)
{
    return pwrite(fd, data, length, at);
}

static size_t total(const struct iovec *parts, int count)
{
    size_t length = 0;
    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    return length;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    be_ready();
    before_write(fd, total(parts, count), -1);
    ssize_t done = real_writev(fd, parts, count);
    after_write(fd);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    be_ready();
    before_write(fd, total(parts, count), at);
    ssize_t done = real_pwritev(fd, parts, count, at);
    after_write(fd);
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at)
{
    return pwritev(fd, parts, count, at);
}

int ftruncate(int fd, off_t size)
{
    struct stat stat;
    be_ready();
    if (is_ours(fd, &stat))
        tell_old(TRUNCATE, fd, &stat, size, stat.st_size);
    return real_ftruncate(fd, size);
}

int ftruncate64(int fd, off_t size)
{
    return ftruncate(fd, size);
}

int truncate(const char *name, off_t size)
{
    be_ready();
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return real_truncate(name, size);
    int result = ftruncate(fd, size), saved = errno;
    close(fd);
    errno = saved;
    return result;
}

int truncate64(const char *name, off_t size)
{
    return truncate(name, size);
}

static int synced(int fd, int (*real)(int))
{
    char path[PATH_MAX];
    struct stat stat;
    be_ready();
    if (!root_length || fstat(fd, &stat) || !path_of(fd, path) ||
        !is_below(path, root, root_length) || !(S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode)))
        return real(fd);
    if (is_below(path, lie, lie_length))
        return 0;
    uint64_t id = (uint64_t)syscall(SYS_gettid) << 32 | ++counter;
    tell(BEGIN, stat.st_ino, id, stat.st_size, NULL, 0, NULL, 0);
    int result = real(fd);
    if (!result)
        tell(SYNCED, stat.st_ino, id, S_ISDIR(stat.st_mode) != 0, path, strlen(path), NULL, 0);
    return result;
}

int fsync(int fd)
{
    return synced(fd, real_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, real_fdatasync);
}

/* An inode that loses its name keeps another one in the vault. */
static uint64_t keep(const char *path)
{
    char kept[2 * PATH_MAX];
    struct stat stat;
    if (lstat(path, &stat) || !S_ISREG(stat.st_mode))
        return 0;
    snprintf(kept, sizeof kept, "%s/inode-%llu", vault, (unsigned long long)stat.st_ino);
    syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
    return stat.st_ino;
}

static void before_rename(int old_dir, const char *old, int new_dir, const char *new)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct stat stat;
    int saved = errno;
    if (root_length && absolute(old_dir, old, from) && absolute(new_dir, new, to) &&
        (is_below(from, root, root_length) || is_below(to, root, root_length)) &&
        !lstat(from, &stat))
        tell(RENAME, stat.st_ino, keep(to), 0, from, strlen(from), to, strlen(to));
    errno = saved;
}

int rename(const char *old, const char *new)
{
    be_ready();
    before_rename(AT_FDCWD, old, AT_FDCWD, new);
    return real_rename(old, new);
}

int renameat(int old_dir, const char *old, int new_dir, const char *new)
{
    be_ready();
    before_rename(old_dir, old, new_dir, new);
    return real_renameat(old_dir, old, new_dir, new);
}

static void before_unlink(int dir, const char *name)
{
    char path[PATH_MAX];
    int saved = errno;
    uint64_t inode = 0;
    if (root_length && absolute(dir, name, path) && is_below(path, root, root_length))
        inode = keep(path);
    if (inode)
        tell(UNLINK, inode, 0, 0, path, strlen(path), NULL, 0);
    errno = saved;
}

int unlink(const char *name)
{
    be_ready();
    before_unlink(AT_FDCWD, name);
    return real_unlink(name);
}

int unlinkat(int dir, const char *name, int flags)
{
    be_ready();
    if (!(flags & AT_REMOVEDIR))
        before_unlink(dir, name);
    return real_unlinkat(dir, name, flags);
}
