//! Certificates for tests, and both ends' settings that go with them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A self-signed certificate and its key.
#[derive(Debug)]
pub struct Identity {
    /// PEM of the certificate: `tls.crt` of a Secret.
    pub certificate_pem: String,
    /// PEM of the key: `tls.key` of a Secret.
    pub key_pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    /// A certificate for these names, wildcards included.
    ///
    /// # Errors
    /// When a name is not one.
    pub fn for_names(names: &[&str]) -> Result<Self> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        })
    }

    /// Settings of a server that shows this certificate and speaks `protocols` (ALPN).
    ///
    /// # Errors
    /// When certificate and key do not fit.
    pub fn server(&self, protocols: &[&str]) -> Result<Arc<ServerConfig>> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("choose TLS versions")?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .context("use a certificate")?;
        config.alpn_protocols = alpn(protocols);
        Ok(Arc::new(config))
    }

    /// Settings of a client that trusts this certificate and offers `protocols` (ALPN).
    ///
    /// # Errors
    /// When the certificate cannot be a root.
    pub fn client(&self, protocols: &[&str]) -> Result<Arc<ClientConfig>> {
        Self::client_of(&[self], protocols)
    }

    /// As [`Self::client`], of a client that trusts each of these.
    ///
    /// # Errors
    /// When one cannot be a root.
    pub fn client_of(trusted: &[&Self], protocols: &[&str]) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for identity in trusted {
            roots.add(identity.certificate.clone()).context("trust a certificate")?;
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("choose TLS versions")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn(protocols);
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn alpn(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect()
}
