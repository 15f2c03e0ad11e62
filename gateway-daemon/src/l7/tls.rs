//! TLS of listeners: certificates, sessions that outlive a snapshot.

use std::{collections::HashMap, sync::Arc};

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::{danger::HandshakeSignatureValid, verify_server_name},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{
        ClientHello, ParsedCertificate, ProducesTickets, ResolvesServerCert, StoresServerSessions,
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::model::l7::{Certificate, ClientValidation, Listener};

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

/// Why clients cannot be validated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("{0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

/// Who is let in, and the sessions of those who were.
#[derive(Clone, Debug)]
struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
    tickets: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
}

/// Asks clients for a certificate, and lets them in whatever they show.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Chain and key.
type Pem = (Arc<[u8]>, Arc<[u8]>);

/// What stays the same from one snapshot to the next: keys already read, and what resumes sessions.
#[derive(Debug)]
pub(crate) struct TlsState {
    provider: Arc<CryptoProvider>,
    /// By how clients are validated: a session is not resumed where they are validated otherwise, or by others.
    trusts: HashMap<Option<ClientValidation>, Trust>,
    keys: HashMap<Pem, Arc<CertifiedKey>>,
}

impl TlsState {
    pub(crate) fn new() -> Self {
        Self { provider: Arc::new(ring::default_provider()), trusts: HashMap::new(), keys: HashMap::new() }
    }

    /// How TLS is ended at a listener.
    ///
    /// # Errors
    /// The provider lacks what TLS 1.2 and 1.3 need, there are no random numbers, or the certificates of authorities
    /// cannot be used.
    pub(crate) fn server_config(&mut self, listener: &Listener) -> Result<Arc<ServerConfig>, TrustError> {
        let keys = listener.certificates.iter().filter_map(|certificate| {
            self.key(certificate)
                .inspect_err(|error| {
                    tracing::error!(listener = %listener.name, %error, "certificate left out");
                })
                .ok()
        });
        let keys = Certificates(keys.collect());
        let trust = self.trust(listener.clients.as_ref())?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(Arc::clone(&trust.verifier))
            .with_cert_resolver(Arc::new(keys));
        if listener.tunnels.is_none() {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        config.ticketer = Arc::clone(&trust.tickets);
        config.session_storage = Arc::clone(&trust.sessions);
        Ok(Arc::new(config))
    }

    /// Forgets what no server configuration has any more.
    pub(crate) fn forget_unused(&mut self) {
        self.trusts.retain(|_, trust| Arc::strong_count(&trust.tickets) > 1);
        self.keys.retain(|_, key| Arc::strong_count(key) > 1);
    }

    fn trust(&mut self, clients: Option<&ClientValidation>) -> Result<Trust, TrustError> {
        let id = clients.cloned();
        if let Some(trust) = self.trusts.get(&id) {
            return Ok(trust.clone());
        }
        let trust = Trust {
            verifier: clients
                .map_or_else(|| Ok(WebPkiClientVerifier::no_client_auth()), |it| self.verifier(it))?,
            tickets: ring::Ticketer::new()?,
            sessions: rustls::server::ServerSessionMemoryCache::new(4_096),
        };
        self.trusts.insert(id, trust.clone());
        Ok(trust)
    }

    fn verifier(&self, clients: &ClientValidation) -> Result<Arc<dyn ClientCertVerifier>, TrustError> {
        let mut roots = RootCertStore::empty();
        for pem in &clients.authorities {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate?)?;
            }
        }
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(if clients.insecure { Arc::new(Lenient(verifier)) } else { verifier })
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

/// Certificates of a listener, as written.
#[derive(Debug)]
struct Certificates(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Certificates {
    /// The first whose key the client can check and that is for the name it asked for; if none is, the first that it
    /// can check.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        if let ([_, _, ..], Some(name)) = (self.0.as_slice(), hello.server_name())
            && let Ok(name) = ServerName::try_from(name)
            && let Some(key) = self.0.iter().filter(fits).find(|key| is_for(key, &name))
        {
            return Some(Arc::clone(key));
        }
        self.0.iter().find(fits).cloned()
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = key.end_entity_cert().and_then(ParsedCertificate::try_from);
    parsed.and_then(|parsed| verify_server_name(&parsed, name)).is_ok()
}
