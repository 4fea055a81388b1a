"""Certificates for tests, made on the spot: of an authority for servers and clients, or signing themselves."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificate(msgspec.Struct, frozen=True):
    """Two PEM files."""

    chain: Path
    key: Path


class Authority:
    """Its own certificate is at `chain`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory, self._key, self._name = directory, ec.generate_private_key(ec.SECP256R1()), name
        self.chain = directory / f"{name}.pem"
        own = _builder(name, name, self._key, days=(-1, 30))
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._own = own.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.chain.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def certificate(
        self, file: str, *hosts: str, days: tuple[float, float] = (-1, 7), password: bytes | None = None
    ) -> Certificate:
        """One for `hosts`, in FILE.pem and FILE.key, valid between `days` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _for(hosts, _builder(file, self._name, key, days=days))
        return _written(self._directory, file, made.sign(self._key, hashes.SHA256()), key, password)


def self_signed(directory: Path, file: str = "chain", *, days: float = 1) -> Certificate:
    """A fresh one for localhost, in FILE.pem and FILE.key, good for so many days more."""
    directory.mkdir(exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    made = _for(("localhost", "127.0.0.1"), _builder("localhost", "localhost", key, days=(min(days, 0) - 1, days)))
    return _written(directory, file, made.sign(key, hashes.SHA256()), key, None)


def _builder(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, *, days: tuple[float, float]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )


def _for(hosts: tuple[str, ...], made: x509.CertificateBuilder) -> x509.CertificateBuilder:
    names = [x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts]
    return made.add_extension(x509.SubjectAlternativeName(names), critical=False) if names else made


def _written(
    directory: Path, file: str, signed: x509.Certificate, key: ec.EllipticCurvePrivateKey, password: bytes | None
) -> Certificate:
    found = Certificate(directory / f"{file}.pem", directory / f"{file}.key")
    found.chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    found.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
    found.key.chmod(0o600)
    return found
