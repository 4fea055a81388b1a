"""A certificate authority for tests: signs certificates for servers and clients, good ones and bad ones."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.certificates import Certificate


class Authority:
    """Its own certificate is at `chain`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory, self._key, self._name = directory, ec.generate_private_key(ec.SECP256R1()), name
        self.chain = directory / f"{name}.pem"
        own = self._builder(name, self._key, days=(-1, 30))
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._own = own.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.chain.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def certificate(
        self, file: str, *hosts: str, days: tuple[float, float] = (-1, 7), password: bytes | None = None
    ) -> Certificate:
        """One for `hosts`, in FILE.pem and FILE.key, valid between `days` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        made = self._builder(file, key, days=days)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        found = Certificate(self._directory / f"{file}.pem", self._directory / f"{file}.key")
        signed = made.sign(self._key, hashes.SHA256())
        found.chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        found.key.write_bytes(key.private_bytes(*form, hidden))
        found.key.chmod(0o600)
        return found

    def _builder(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, days: tuple[float, float]
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
        )
