"""A stand-in for macOS: what Linux alone has is taken away from the process.

With TFF_DRIFT_ELSEWHERE=1 (`make elsewhere`) the tests run so, and the Pythons that
they start: what they call of Linux fails as it would there. TensorFlow, NumPy and
Python's own compiled modules stay Linux'.
"""

import builtins
import ctypes
import errno
import fcntl
import fnmatch
import io
import mmap
import multiprocessing
import os
import pathlib
import platform
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request  # noqa: F401  # On macOS it has a compiled part, missing here.

# Of modules, names that Python's documentation has for Linux and not for macOS, or that
# are not in macOS' headers.
NAMES = {
    os: """
        CLONE_* EFD_* GRND_* MFD_* O_DIRECT O_LARGEFILE O_NOATIME O_PATH O_RSYNC
        O_TMPFILE P_PIDFD POSIX_FADV_* RTLD_DEEPBIND RWF_* SCHED_BATCH SCHED_IDLE
        SCHED_RESET_ON_FORK SPLICE_* TFD_* XATTR_* copy_file_range eventfd*
        fdatasync getrandom getresgid getresuid getxattr listxattr memfd_create
        pidfd_open pipe2 posix_fadvise posix_fallocate removexattr sched_getaffinity
        sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
        sched_setparam sched_setscheduler setns setresgid setresuid setxattr splice
        timerfd_* unshare
    """,
    fcntl: "DN_* F_ADD_SEALS F_EXLCK F_*LEASE F_GET_SEALS F_NOTIFY F_OFD_* F_*PIPE_SZ"
    " F_SEAL_* F_?ETSIG F_SHLCK",
    mmap: "MADV_*DUMP MADV_*FORK MADV_*HUGEPAGE MADV_HWPOISON MADV_*MERGEABLE"
    " MADV_REMOVE MAP_DENYWRITE MAP_EXECUTABLE MAP_POPULATE MAP_STACK",
    resource: "RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_OFILE RLIMIT_RTPRIO RLIMIT_RTTIME"
    " RLIMIT_SIGPENDING RUSAGE_THREAD prlimit",
    select: "epoll EPOLL*",
    signal: "SIGCLD SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT pidfd_send_signal"
    " sigtimedwait sigwaitinfo",
    socket: "AF_ALG AF_CAN AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC MSG_CONFIRM"
    " MSG_ERRQUEUE MSG_MORE MSG_NOSIGNAL SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE"
    " SO_INCOMING_CPU SO_MARK SO_PASS* SO_PEER* SO_PRIORITY TCP_CORK TCP_DEFER_ACCEPT"
    " TCP_INFO TCP_LINGER2 TCP_QUICKACK TCP_SYNCNT TCP_USER_TIMEOUT TCP_WINDOW_CLAMP",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
# As `os.sysconf` has them.
SYSCONF = ("SC_AVPHYS_PAGES",)
# Of the C library, whose file has another name there.
SYMBOLS = frozenset({"prctl", "syscall", "sched_getaffinity", "malloc_trim"})
LIBRARIES = ("libc.so*", "libm.so*", "libdl.so*", "librt.so*", "libpthread.so*")
FOLDERS = ("/proc", "/sys", "/dev/shm", "/run")
# `tff-drift install-tff` puts an empty file in its place.
WORKER = "tensorflow_federated/data/worker_binary"
UNAME = ("Darwin", "elsewhere", "23.6.0", "Darwin Kernel Version 23.6.0", "arm64")


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


def _with_an_empty_worker(stat):
    def guarded(path, *args, **kwargs):
        found = stat(path, *args, **kwargs)
        if isinstance(path, int) or not os.fsdecode(path).endswith(WORKER):
            return found
        return os.stat_result([*found[:6], 0, *found[7:]])

    return guarded


def _without_the_worker(start):
    def guarded(process, args, *others, **kwargs):
        program = args if isinstance(args, (str, os.PathLike)) else args[0]
        if os.fsdecode(program).endswith(WORKER):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
        start(process, args, *others, **kwargs)

    return guarded


def _without_symbols(get):
    def guarded(library, name):
        if name in SYMBOLS:
            raise AttributeError(f"dlsym: symbol not found: {name}")
        return get(library, name)

    return guarded


def _without_libraries(initialize):
    def guarded(library, name, *args, **kwargs):
        if name and any(fnmatch.fnmatch(str(name), each) for each in LIBRARIES):
            raise OSError(f"dlopen({name}, 0x0006): tried: '{name}' (no such file)")
        initialize(library, name, *args, **kwargs)

    return guarded


def _take_names_away():
    for module, patterns in NAMES.items():
        for pattern in patterns.split():
            for name in fnmatch.filter(dir(module), pattern):
                delattr(module, name)
    for name in SYSCONF:
        os.sysconf_names.pop(name, None)


def _take_files_away():
    os.stat = _with_an_empty_worker(os.stat)
    for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink"):
        setattr(os, name, _without_folders(getattr(os, name)))
    access = os.access
    os.access = lambda path, *args, **kwargs: (
        not _is_missing(path) and access(path, *args, **kwargs)
    )
    builtins.open = io.open = _without_folders(io.open)
    # Where Python looks when it starts.
    shutil._copyxattr = lambda *args, **kwargs: None
    tempfile._O_TMPFILE_WORKS = False


def _rename_the_system():
    # Python reads them once, from files that are named after the system.
    sysconfig.get_config_vars()
    sys.platform = "darwin"
    os.uname = lambda: os.uname_result(UNAME)
    platform._uname_cache = None
    platform.mac_ver = lambda *args, **kwargs: ("14.6", ("", "", ""), "arm64")
    multiprocessing.set_start_method("spawn", force=True)


def take_linux_away():
    """Takes away what macOS does not have, for the process and its children."""
    _take_names_away()
    _take_files_away()
    subprocess.Popen.__init__ = _without_the_worker(subprocess.Popen.__init__)
    ctypes.CDLL.__getattr__ = _without_symbols(ctypes.CDLL.__getattr__)
    ctypes.CDLL.__init__ = _without_libraries(ctypes.CDLL.__init__)
    _rename_the_system()
    # Python imports `sitecustomize` when it starts.
    here = pathlib.Path(__file__).resolve()
    paths = [str(here.with_name("elsewhere_site")), os.environ.get("PYTHONPATH", "")]
    if paths[0] not in paths[1].split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
