//! TLS of listeners: certificates, sessions that outlive a snapshot.

use std::{collections::HashMap, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ProducesTickets, ResolvesServerCert, StoresServerSessions},
    sign::CertifiedKey,
};

use crate::model::l7::{Certificate, Listener};

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

/// Chain and key.
type Pem = (Arc<[u8]>, Arc<[u8]>);

/// What stays the same from one snapshot to the next: keys already read, and what resumes sessions.
#[derive(Debug)]
pub(crate) struct TlsState {
    provider: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
    keys: HashMap<Pem, Arc<CertifiedKey>>,
}

impl TlsState {
    /// # Errors
    /// No random numbers.
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        Ok(Self {
            provider: Arc::new(ring::default_provider()),
            tickets: ring::Ticketer::new()?,
            sessions: rustls::server::ServerSessionMemoryCache::new(4_096),
            keys: HashMap::new(),
        })
    }

    /// How TLS is ended at a listener.
    ///
    /// # Errors
    /// The provider lacks what TLS 1.2 and 1.3 need.
    pub(crate) fn server_config(&mut self, listener: &Listener) -> Result<Arc<ServerConfig>, rustls::Error> {
        let keys = listener.certificates.iter().filter_map(|certificate| {
            self.key(certificate)
                .inspect_err(|error| {
                    tracing::error!(listener = %listener.name, %error, "certificate left out");
                })
                .ok()
        });
        let keys = Certificates(keys.collect());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(keys));
        if listener.tunnels.is_none() {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        config.ticketer = Arc::clone(&self.tickets);
        config.session_storage = Arc::clone(&self.sessions);
        Ok(Arc::new(config))
    }

    /// Forgets keys that no server configuration has any more.
    pub(crate) fn forget_unused(&mut self) {
        self.keys.retain(|_, key| Arc::strong_count(key) > 1);
    }

    fn key(&mut self, certificate: &Certificate) -> Result<Arc<CertifiedKey>, CertificateError> {
        let id = (Arc::clone(&certificate.chain), Arc::clone(&certificate.key));
        if let Some(key) = self.keys.get(&id) {
            return Ok(Arc::clone(key));
        }
        let chain = CertificateDer::pem_slice_iter(&certificate.chain).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&certificate.key)?;
        let key = Arc::new(CertifiedKey::from_der(chain, key, &self.provider)?);
        self.keys.insert(id, Arc::clone(&key));
        Ok(key)
    }
}

/// Certificates of a listener.
#[derive(Debug)]
struct Certificates(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        self.0.iter().find(fits).cloned()
    }
}
