"""Certificates for TLS servers on loopback, made for one test."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def for_server(self) -> ssl.SSLContext:
        """What a server with this certificate needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            path.write_bytes(self.certificate + self.key)
            context.load_cert_chain(path)
        return context

    def for_client(self) -> ssl.SSLContext:
        """What a client that trusts this certificate, and no other, needs."""
        return ssl.create_default_context(cadata=self.certificate.decode())


def make_certificate(
    name: str = "localhost", ip: str = "127.0.0.1", is_expired: bool = False
) -> Certificate:
    """A certificate for `name` and `ip`, good for a day, or out of date since yesterday."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ends = datetime.now(UTC) + timedelta(days=-1 if is_expired else 1)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(ip))]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=10))
        .not_valid_after(ends)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
