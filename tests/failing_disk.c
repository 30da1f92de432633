/* A disk with bad blocks, for tests: loaded with LD_PRELOAD, see failing_disk.py.

   FAILING_DISK names a file with a line "OFFSET LENGTH ERRNO PATH" for each bad range. A read that
   reaches one ends in front of it, one that begins in it fails, and a mapped page of it kills, as a
   kernel does it. COUNTED_READS names a file that gets the number of bytes that were read below the
   directory COUNTED_BELOW. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 64
static struct { off_t begin, end; int error; char path[PATH_MAX]; } bad[MOST];
static int count = -1;
static const char *below;

/* Python calls it in a process that was forked: what fails there is told in its own environment. */
void failing_disk_load(void) {
  const char *name = getenv("FAILING_DISK");
  FILE *file = name ? fopen(name, "r") : NULL;
  long long begin, length;
  int error;
  count = 0;
  below = getenv("COUNTED_BELOW");
  if (!file) return;
  while (count < MOST && fscanf(file, "%lld %lld %d %4095[^\n]", &begin, &length, &error, bad[count].path) == 4) {
    bad[count].begin = begin;
    bad[count].end = begin + length;
    bad[count++].error = error;
  }
  fclose(file);
}

static int path_of(int fd, char *path) {
  char link[64];
  if (count < 0) failing_disk_load();
  if (!count && !below) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, PATH_MAX - 1);
  if (size <= 0 || path[0] != '/') return 0;
  path[size] = 0;
  return 1;
}

/* How many of `size` bytes at `at` can be read: -1 and errno for none. */
static ssize_t allowed(int fd, off_t at, size_t size) {
  char path[PATH_MAX];
  ssize_t room = (ssize_t)size;
  if (!size || !path_of(fd, path)) return room;
  for (int i = 0; i < count; i++) {
    if (strcmp(path, bad[i].path)) continue;
    if (at >= bad[i].begin && at < bad[i].end) { errno = bad[i].error; return -1; }
    if (at < bad[i].begin && at + room > bad[i].begin) room = (ssize_t)(bad[i].begin - at);
  }
  return room;
}

static ssize_t counted(int fd, ssize_t got) {
  char path[PATH_MAX], line[32];
  const char *name = getenv("COUNTED_READS");
  if (got > 0 && name && path_of(fd, path) && below && !strncmp(path, below, strlen(below))) {
    int saved = errno, out = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (write(out, line, (size_t)snprintf(line, sizeof line, "%zd\n", got)) < 0) abort();
    close(out);
    errno = saved;
  }
  return got;
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
  ssize_t room = allowed(fd, at, size);
  return room < 0 ? -1 : counted(fd, syscall(SYS_pread64, fd, to, (size_t)room, at));
}
ssize_t pread(int fd, void *to, size_t size, off_t at) { return pread64(fd, to, size, at); }

ssize_t read(int fd, void *to, size_t size) {
  off_t at = lseek(fd, 0, SEEK_CUR);
  ssize_t room = at < 0 ? (ssize_t)size : allowed(fd, at, size);
  if (room < 0) return -1;
  ssize_t got = syscall(SYS_read, fd, to, (size_t)room);
  return at < 0 ? got : counted(fd, got);
}

ssize_t preadv64v2(int fd, const struct iovec *to, int n, off64_t at, int flags) {
  ssize_t done = 0;
  (void)flags;
  for (int i = 0; i < n; i++) {
    ssize_t got = pread64(fd, to[i].iov_base, to[i].iov_len, at + done);
    if (got < 0) return done ? done : -1;
    done += got;
    if ((size_t)got < to[i].iov_len) break;
  }
  return done;
}
ssize_t preadv64(int fd, const struct iovec *to, int n, off64_t at) { return preadv64v2(fd, to, n, at, 0); }
ssize_t preadv(int fd, const struct iovec *to, int n, off_t at) { return preadv64v2(fd, to, n, at, 0); }
ssize_t preadv2(int fd, const struct iovec *to, int n, off_t at, int f) { return preadv64v2(fd, to, n, at, f); }

/* Those that copy between files read, too. */
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) {
  off_t begin = at ? *at : lseek(in, 0, SEEK_CUR);
  ssize_t room = allowed(in, begin, size);
  return room < 0 ? -1 : counted(in, syscall(SYS_sendfile, out, in, at, (size_t)room));
}
ssize_t sendfile(int out, int in, off_t *at, size_t size) { return sendfile64(out, in, at, size); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
  off_t begin = from ? *from : lseek(in, 0, SEEK_CUR);
  ssize_t room = allowed(in, begin, size);
  return room < 0 ? -1 : counted(in, syscall(SYS_copy_file_range, in, from, out, to, (size_t)room, flags));
}

void *mmap64(void *wanted, size_t size, int protection, int flags, int fd, off64_t at) {
  char path[PATH_MAX];
  char *found = (char *)syscall(SYS_mmap, wanted, size, protection, flags, fd, at);
  if (found == MAP_FAILED || fd < 0 || (flags & MAP_ANONYMOUS) || !path_of(fd, path)) return found;
  for (int i = 0; i < count; i++) {
    off_t begin = bad[i].begin - at, end = bad[i].end - at;
    if (strcmp(path, bad[i].path) || end <= 0 || begin >= (off_t)size) continue;
    begin = begin < 0 ? 0 : begin - begin % 4096;
    end = end > (off_t)size ? (off_t)size : end;
    syscall(SYS_mprotect, found + begin, (size_t)(end - begin), PROT_NONE);
  }
  return found;
}
void *mmap(void *wanted, size_t size, int protection, int flags, int fd, off_t at) {
  return mmap64(wanted, size, protection, flags, fd, at);
}
