// A wall clock that can be set for some processes alone: loaded before the C library (LD_PRELOAD), it adds the seconds that
// the file FAILURES_CLOCK_FILE holds (8 bytes) to every wall time that is read, and takes them off deadlines in wall
// time that are waited for. The monotonic clock is the machine's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// Deadlines of the monotonic clock are seconds since the machine's start: never as many as wall time has.
#define EARLIEST_WALL_TIME 500000000

static const volatile int64_t none = 0;
static const volatile int64_t* offset = &none;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("FAILURES_CLOCK_FILE");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (map != MAP_FAILED) offset = map;
}

static long kernel(long number, long a, long b, long c, long d, long e, long f) {
  static long (*next)(long, ...);
  if (next == NULL) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return next(number, a, b, c, d, e, f);
}

static int is_wall(clockid_t id) {
  return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI;
}

static const struct timespec* on_machine(const struct timespec* deadline, struct timespec* room) {
  if (deadline == NULL || deadline->tv_sec < EARLIEST_WALL_TIME) return deadline;
  *room = *deadline;
  room->tv_sec -= *offset;
  return room;
}

int clock_gettime(clockid_t id, struct timespec* now) {
  static int (*next)(clockid_t, struct timespec*);
  if (next == NULL) next = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = next(id, now);
  if (!failed && is_wall(id)) now->tv_sec += *offset;
  return failed;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != NULL) *now = exact.tv_sec;
  return exact.tv_sec;
}

#define WAITING(name, parameters, arguments)                                  \
  int name parameters {                                                       \
    static int(*next) parameters;                                             \
    struct timespec room;                                                     \
    if (next == NULL) next = (int(*) parameters)dlsym(RTLD_NEXT, #name);      \
    return next arguments;                                                    \
  }

WAITING(pthread_cond_timedwait,
        (pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex, const struct timespec* restrict deadline),
        (condition, mutex, on_machine(deadline, &room)))
WAITING(pthread_cond_clockwait,
        (pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex, clockid_t id,
         const struct timespec* restrict deadline),
        (condition, mutex, id, on_machine(deadline, &room)))
WAITING(pthread_mutex_timedlock, (pthread_mutex_t* restrict mutex, const struct timespec* restrict deadline),
        (mutex, on_machine(deadline, &room)))
WAITING(sem_timedwait, (sem_t* restrict semaphore, const struct timespec* restrict deadline),
        (semaphore, on_machine(deadline, &room)))
WAITING(sem_clockwait, (sem_t* restrict semaphore, clockid_t id, const struct timespec* restrict deadline),
        (semaphore, id, on_machine(deadline, &room)))

// Abseil, and so gRPC and Envoy, wait by the kernel's own call.
long syscall(long number, ...) {
  long given[6];
  va_list list;
  va_start(list, number);
  for (int at = 0; at < 6; ++at) given[at] = va_arg(list, long);
  va_end(list);
  struct timespec room;
  if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME) && (given[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
    given[3] = (long)on_machine((const struct timespec*)given[3], &room);
  if (number == SYS_clock_gettime) return clock_gettime((clockid_t)given[0], (struct timespec*)given[1]);
  return kernel(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
