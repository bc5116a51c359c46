"""A stand-in for macOS: what Linux alone has is taken away from the process.

With TFF_DRIFT_ELSEWHERE=1 the tests run so: what they call of Linux fails as it would
there. TensorFlow, NumPy and Python's own compiled modules stay Linux'.
"""

import builtins
import ctypes
import errno
import io
import os
import platform
import select
import signal
import tempfile
import time

# Of modules, names that Python's documentation has for Linux and not for macOS.
NAMES = {
    os: """
        CLONE_FS EFD_CLOEXEC GRND_NONBLOCK MFD_CLOEXEC O_DIRECT O_LARGEFILE O_NOATIME
        O_PATH O_TMPFILE P_PIDFD POSIX_FADV_DONTNEED POSIX_FADV_NORMAL
        POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED RTLD_DEEPBIND RWF_APPEND RWF_DSYNC
        RWF_HIPRI RWF_NOWAIT RWF_SYNC SCHED_BATCH SCHED_IDLE SCHED_RESET_ON_FORK
        SPLICE_F_MOVE copy_file_range eventfd eventfd_read eventfd_write fdatasync
        getrandom getresgid getresuid getxattr listxattr memfd_create pidfd_open pipe2
        posix_fadvise posix_fallocate  removexattr sched_getaffinity
        sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
        sched_setparam sched_setscheduler setns setresgid setresuid setxattr splice
        unshare
    """,
    select: "epoll EPOLLIN EPOLLOUT EPOLL_CLOEXEC",
    signal: "SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
# As `os.sysconf` has them.
SYSCONF = ("SC_AVPHYS_PAGES",)
# Of the C library.
SYMBOLS = frozenset({"prctl", "syscall", "sched_getaffinity", "malloc_trim"})
FOLDERS = ("/proc", "/sys", "/dev/shm", "/run")


def _is_missing(path):
    if isinstance(path, int):
        return False
    text = os.fsdecode(path)
    return any(text == each or text.startswith(f"{each}/") for each in FOLDERS)


def _without_folders(function):
    def guarded(path=".", *args, **kwargs):
        if _is_missing(path):
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path)
            )
        return function(path, *args, **kwargs)

    return guarded


def _without_symbols(get):
    def guarded(library, name):
        if name in SYMBOLS:
            raise AttributeError(f"dlsym: symbol not found: {name}")
        return get(library, name)

    return guarded


def take_linux_away():
    """Takes away what macOS does not have, for the rest of the process."""
    for module, names in NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    # Where Python looks when it starts.
    tempfile._O_TMPFILE_WORKS = False
    for name in SYSCONF:
        os.sysconf_names.pop(name, None)
    for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink"):
        setattr(os, name, _without_folders(getattr(os, name)))
    access = os.access
    os.access = lambda path, *args, **kwargs: (
        not _is_missing(path) and access(path, *args, **kwargs)
    )
    builtins.open = io.open = _without_folders(io.open)
    ctypes.CDLL.__getattr__ = _without_symbols(ctypes.CDLL.__getattr__)
    platform.system, platform.machine = lambda: "Darwin", lambda: "arm64"
