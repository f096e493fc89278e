"""The supervisor of commands without a pid namespace, started as the server starts it."""

import json
import os
import re
import subprocess
import sys

import pytest

from deerflow.sandbox import supervisor
from deerflow.sandbox.users import sandbox_uid


@pytest.mark.skipif(sandbox_uid() is None, reason="needs root: only then commands have a user of their own")
def test_a_command_starts_though_others_of_its_user_start_after_they_were_counted() -> None:
    user = sandbox_uid()
    reader, writer = os.pipe()
    order = {
        "parent": os.getpid(),
        "argv": ["/bin/cat", "/proc/self/limits"],
        "cwd": "/",
        "env": {},
        "uid": user,
        "group": None,
        "rlimits": {},
        "max_processes": -1,  # as if one more had started since the count than the limit allows
    }
    os.write(writer, json.dumps(order).encode())
    os.close(writer)
    argv = [sys.executable, "-I", "-S", supervisor.__file__, str(reader)]
    other = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, user=user, group=user)
    try:
        done = subprocess.run(argv, pass_fds=[reader], capture_output=True, text=True, timeout=60)
    finally:
        os.close(reader)
        other.communicate()

    assert done.stderr == ""
    assert re.search(r"^Max processes +\d+ +\d+ ", done.stdout, re.MULTILINE)
