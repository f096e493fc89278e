"""Which addresses may be dialled for somebody else."""

from ipaddress import ip_address, ip_network

import pytest

from deerflow.addresses import check_address, checked_addresses, parse_network, special_purpose
from deerflow.errors import AddressRefusedError, ConfigError

SETTING = "some.setting"
REFUSED = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.0.170",
    "192.0.0.192", "192.0.0.255", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.0.1",
    "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255", "::", "::1", "::10.0.0.1", "::8.8.8.8", "::ffff:10.0.0.1",
    "::ffff:168.63.129.16", "::ffff:192.0.0.170", "64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::1",
    "100::1", "100:0:0:1::1", "2001::1", "2001:0:808:808::1", "2001:2::1", "2001:3::1", "2001:4:112::1",
    "2001:20::1", "2001:30::1", "2001:db8::1", "2002:a00:1::1", "2002:808:808::1", "2620:4f:8000::1",
    "3fff::1", "5f00::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "feff::1", "ff02::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "168.63.129.15", "168.63.129.17", "172.15.0.1",
    "172.32.0.1", "192.0.1.1", "192.0.3.1", "198.17.255.255", "198.20.0.1", "223.255.255.255",
    "::ffff:8.8.8.8", "2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1",
]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_of_the_special_purpose_registries_are_refused(address: str) -> None:
    with pytest.raises(AddressRefusedError, match=rf"^{address} is a private .*; see some\.setting$"):
        check_address(address, setting=SETTING)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_public_internet_may_be_dialled(address: str) -> None:
    assert check_address(address, setting=SETTING) == ip_address(address)


def test_what_the_operator_permits_may_be_dialled_in_either_spelling() -> None:
    allowed = [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]

    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert check_address(address, allowed=allowed, setting=SETTING)
    for address in ("10.2.0.1", "::ffff:10.2.0.1", "fe80::1"):
        with pytest.raises(AddressRefusedError):
            check_address(address, allowed=allowed, setting=SETTING)


def test_the_registry_of_the_standard_library_knows_nothing_more() -> None:
    networks = ["0.0.0.0/4", "96.0.0.0/4", "160.0.0.0/4", "192.0.0.0/4", "2000::/12", "3ff0::/12"]
    for network in map(ip_network, networks):
        step = max(network.num_addresses // 4096, 1)
        for address in (network[n * step] for n in range(4096)):
            assert address.is_global or special_purpose(address), address


async def test_names_are_resolved_and_every_spelling_of_an_address_counts() -> None:
    for host in ("localhost", "2130706433", "0x7f.1", "127.1"):
        with pytest.raises(AddressRefusedError):
            await checked_addresses(host, 80, setting=SETTING)
    assert await checked_addresses("8.8.8.8", 53, setting=SETTING) == ["8.8.8.8"]


def test_a_wrong_range_names_its_setting() -> None:
    with pytest.raises(ConfigError, match=r"some\.setting: '10\.0\.0\.300/8' is no range"):
        parse_network("10.0.0.300/8", setting=SETTING)
