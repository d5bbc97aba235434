"""Test signed model files, and the removal of files left by a killed save."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from vicinal import LCA, ParzenWindows, io
from vicinal._model_files.replacing import replacing
from vicinal.cli import main

KEY, OTHER = bytes(range(32)), bytes(32)
X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.fixture
def signed(tmp_path):
    path = tmp_path / "model.vicinal"
    io.save(LCA(reg=0.1).fit(X), path, key=KEY)
    return path


def with_checksum(raw):
    """The bytes with the checksum that they should have: anyone can repair it."""
    digest = hashlib.sha256(raw[:35] + raw[99:]).hexdigest().encode()
    return raw[:35] + digest + raw[99:]


def test_a_signed_file_is_loaded_with_its_key_and_without_one(signed):
    fitted = LCA(reg=0.1).fit(X)
    for key in (KEY, None, bytearray(KEY)):
        assert np.array_equal(io.load(signed, key=key).components_, fitted.components_)
    assert np.array_equal(io.load_components(signed, key=KEY), fitted.components_)
    assert io.describe(signed, key=KEY)["class"] == "LCA"


@pytest.mark.parametrize("read", [io.load, io.describe, io.load_components])
def test_another_key_is_refused(read, signed):
    with pytest.raises(ValueError, match="its signature does not agree with the key"):
        read(signed, key=OTHER)


def test_a_file_without_a_signature_is_refused_where_one_is_expected(tmp_path):
    io.save(ParzenWindows().fit(X), tmp_path / "model.vicinal")
    with pytest.raises(ValueError, match=r"it is not signed, but a key was given\. Save it again with"):
        io.load(tmp_path / "model.vicinal", key=KEY)


def test_every_byte_is_signed(signed):
    """With a repaired checksum, so that the signature alone stands between the change and the reader."""
    raw = signed.read_bytes()
    assert with_checksum(raw) == raw
    for at in np.random.default_rng(0).choice(len(raw), size=150, replace=False):
        changed = bytearray(raw)
        changed[at] ^= 1
        signed.write_bytes(with_checksum(bytes(changed)))
        if signed.read_bytes() == raw:  # it was a digit of the checksum
            continue
        with pytest.raises(ValueError, match="cannot load"):
            io.load(signed, key=KEY)
    changed = raw.replace(b"LCA", b"RCA")  # of the same length, in a place that no other check sees first
    signed.write_bytes(with_checksum(changed))
    with pytest.raises(ValueError, match="its signature does not agree"):
        io.load(signed, key=KEY)


def test_a_signature_is_not_moved_to_another_file(signed, tmp_path):
    other = tmp_path / "other.vicinal"
    io.save(LCA(reg=0.2).fit(X), other, key=OTHER)
    raw, mine = other.read_bytes(), signed.read_bytes()
    assert raw[99:109] == mine[99:109] == b'","hmac":"'
    other.write_bytes(with_checksum(raw[:109] + mine[109:173] + raw[173:]))
    with pytest.raises(ValueError, match="its signature does not agree"):
        io.load(other, key=KEY)


def test_a_signed_file_is_a_safetensors_file(signed):
    raw = signed.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert set(header["__metadata__"]) == {"sha256", "hmac", "format", "version", "model"}


@pytest.mark.parametrize(("key", "error"), [("a password of 32 characters, or so", TypeError), (b"short", ValueError)])
def test_keys_that_are_none(key, error, tmp_path):
    with pytest.raises(error, match=r"key must .*secrets\.token_bytes\(32\)"):
        io.save(LCA(), tmp_path / "model.vicinal", key=key)
    assert os.listdir(tmp_path) == []


def test_the_command_signs_and_checks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "other").write_bytes(OTHER)
    (tmp_path / "short").write_bytes(b"short")
    np.savetxt("t.csv", X, delimiter=",", header="a,b", comments="")
    learn = ["learn", "t.csv", "--method", "parzen", "-o", "m.vicinal", "-q"]
    assert main([*learn, "--key-file", "short"]) == 2
    assert main([*learn, "--key-file", "missing"]) == 2
    assert not os.path.exists("m.vicinal")
    assert main([*learn, "--key-file", "key"]) == 0
    assert main(["inspect", "m.vicinal", "--key-file", "key"]) == 0
    assert main(["score", "m.vicinal", "t.csv", "--key-file", "key", "-q"]) == 0
    capsys.readouterr()
    assert main(["inspect", "m.vicinal", "--key-file", "other"]) == 4
    assert "its signature does not agree with the key" in capsys.readouterr().err


# -- what a killed save leaves -----------------------------------------------------------------------------------------

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
def test_what_a_killed_save_left_is_removed_by_the_next_one(saver, tmp_path):
    (left,) = tmp_path.glob(".vicinal-*.tmp")
    with replacing(tmp_path / "m") as file:  # while the other one still writes
        file.write(b"whole")
    assert left.exists()
    saver.send_signal(signal.SIGKILL)
    saver.wait()
    with replacing(tmp_path / "another") as file:  # of another place
        file.write(b"whole")
    assert left.exists()
    with replacing(tmp_path / "m") as file:
        file.write(b"new")
    assert sorted(os.listdir(tmp_path)) == ["another", "m"]
    assert (tmp_path / "m").read_bytes() == b"new"


def test_temporary_files_of_others_are_left_alone(tmp_path):
    strange = tmp_path / ".vicinal-notes.tmp"
    strange.write_text("mine")
    with replacing(tmp_path / "m") as file:
        file.write(b"whole")
    assert strange.read_text() == "mine"
