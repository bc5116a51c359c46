"""Stands for a program that a server forks: `proxy.py ADDRESS WORD...`.

It has the program's standard streams, environment and folder, passes signals on and
ends as the program does. If it is killed, the server kills the program.
"""

import json
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def main(address, words):
    environment = dict(os.environ)
    tell = environment.pop("TFF_DRIFT_TELL_PID", None)
    request = {"words": words, "environment": environment, "folder": os.getcwd()}
    message = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"\0{address}")
        socket.send_fds(server, [len(message).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(message)
        # Who waits for the end of a pipe waits for the program's.
        for number in (0, 1, 2):
            os.close(number)
        program = _number(server)
        for each in _PASSED_ON:
            signal.signal(each, lambda number, _: os.kill(program, number))
        if tell is not None:
            os.write(int(tell), str(program).encode())
            os.close(int(tell))
        status = _number(server)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _number(server):
    told = server.recv(8, socket.MSG_WAITALL)
    if len(told) < 8:
        os._exit(70)  # The server has ended, and told why.
    return int.from_bytes(told, "big")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
