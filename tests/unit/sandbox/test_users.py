"""Who runs commands when the server is root, also where root is root of little."""

import shutil
import subprocess
import sys

import pytest

from deerflow.sandbox.users import SANDBOX_UID, can_change_users, has_number

ASKING = "from deerflow.sandbox.users import sandbox_uid; print(sandbox_uid())"


@pytest.mark.parametrize(
    ("id_map", "is_there"),
    [
        ("         0          0 4294967295\n", True),
        ("         0       1000          1\n", False),
        ("         0       1000          1\n         1     100000      65536\n", True),
        ("         0     100000      65531\n", False),
        ("", False),
    ],
)
def test_a_map_of_a_user_namespace_says_who_is_there(id_map: str, is_there: bool) -> None:
    assert has_number(id_map, SANDBOX_UID) is is_there


@pytest.mark.parametrize(
    ("effective", "can"),
    [
        ("000001ffffffffff", True),
        ("00000000a80425fb", True),  # what Docker leaves by default
        ("0000000000000000", False),
        ("00000000000000c0", False),
    ],
)
def test_root_is_more_than_a_name_only_with_its_capabilities(effective: str, can: bool) -> None:
    status = f"Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective}\nSeccomp:\t0\n"

    assert can_change_users(status) is can


def test_root_without_capabilities_gives_nothing_away() -> None:
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    if shutil.which("setpriv") is None or subprocess.run([*bare, "true"], check=False).returncode != 0:
        pytest.skip("no setpriv that may drop capabilities here")

    asked = subprocess.run([*bare, sys.executable, "-c", ASKING], capture_output=True, text=True, check=True)

    assert asked.stdout == "None\n"


def test_the_root_of_a_user_namespace_without_other_users_gives_nothing_away() -> None:
    alone = ["unshare", "--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("no user namespaces here")

    asked = subprocess.run([*alone, sys.executable, "-c", ASKING], capture_output=True, text=True, check=True)

    assert asked.stdout == "None\n"
