"""Test that files are replaced completely or not at all, also if the process is killed, and keep their permissions."""

import os
import signal
import subprocess
import sys

import pytest

from vicinal._model_files.replacing import replacing

_SAVER = """
import sys, time
from vicinal._model_files.replacing import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def saver(tmp_path):
    """A process in the middle of a save."""
    with subprocess.Popen([sys.executable, "-c", _SAVER, tmp_path / "m"], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        yield process
        process.kill()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_killed_save_leaves_the_old_file(saver, tmp_path):
    (tmp_path / "m").write_bytes(b"old")
    saver.send_signal(signal.SIGKILL)
    saver.wait()
    assert (tmp_path / "m").read_bytes() == b"old"
    with replacing(tmp_path / "m") as file:
        file.write(b"new")
    assert (tmp_path / "m").read_bytes() == b"new"


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has permissions of this kind")
def test_private_file_is_never_replaced_through_a_readable_one(tmp_path):
    path = tmp_path / "model.vicinal"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with replacing(path) as file:
        file.write(b"new")
        temporary = [other for other in tmp_path.iterdir() if other != path]
        assert [other.stat().st_mode & 0o777 for other in temporary] == [0o600]
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
