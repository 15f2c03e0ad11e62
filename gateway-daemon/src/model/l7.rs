//! HTTP, gRPC and TLS: what the proxy serves.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use super::ListenerName;

/// Everything the proxy serves, as of one generation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Proxy {
    /// One entry for each socket to listen on.
    pub binds: BTreeMap<SocketAddr, Bind>,
    /// Services by name. Two rules that share a service (combined services) have the same [`Arc`] here.
    pub services: BTreeMap<String, Arc<Service>>,
}

/// A socket that accepts connections, for all listeners that share its address and port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bind {
    /// Whether connections begin with a TLS handshake.
    pub tls: bool,
    /// Listeners, unique by hostname. A request, or a TLS connection by its server name, belongs to the one whose
    /// hostname fits it most specifically.
    pub listeners: Vec<Listener>,
}

/// A listener of protocol HTTP, HTTPS or TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: ListenerName,
    /// Which hosts (and which server names of TLS) it serves; none for all.
    pub hostname: Option<Hostname>,
    /// What it shows in TLS handshakes; empty on a listener of protocol HTTP, and where TLS passes through.
    pub certificates: Vec<Certificate>,
    /// Set where clients are asked for a certificate in TLS handshakes.
    pub clients: Option<ClientValidation>,
    /// The rules of all attached routes, oldest route first, then by namespace and name, then as written: of two
    /// matches that are equally specific the first one wins.
    pub rules: Vec<Rule>,
    /// Set on a listener of protocol TLS, which has no rules: its connections are handed on whole.
    pub tunnels: Option<Tunnels>,
}

/// Where the connections of a listener of protocol TLS go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tunnels {
    /// Whether TLS ends here; otherwise it ends at the backend, and passes through unread.
    pub terminate: bool,
    /// Attached TLSRoutes, oldest first, then by namespace and name: of two with the same hostname the first one wins.
    pub routes: Vec<TunnelRoute>,
}

/// The rule of a TLSRoute, as attached to one listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TunnelRoute {
    /// Server names it serves, each already within the listener's hostname; never empty.
    pub hostnames: Vec<Hostname>,
    /// Who takes the connections; what its endpoints speak is of no meaning here.
    pub service: Arc<Service>,
}

/// A hostname of a listener or a route: exact, or a wildcard for one or more leading labels. Always in lower case.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Hostname {
    /// This name only.
    Exact(String),
    /// Every name that ends in a dot and this suffix: `*.example.com` is `Wildcard("example.com")`.
    Wildcard(String),
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

/// A certificate chain and its private key, checked to belong together.
#[derive(Clone, Eq, PartialEq)]
pub struct Certificate {
    /// PEM, end entity first.
    pub chain: Arc<[u8]>,
    /// PEM.
    pub key: Arc<[u8]>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must not reach a log.
        f.debug_struct("Certificate").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// How the certificates of clients are validated.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ClientValidation {
    /// Certificates of those who may issue them, PEM, each checked; never empty.
    pub authorities: Vec<Arc<[u8]>>,
    /// Whether clients are let in without a valid certificate as well.
    pub insecure: bool,
}

/// One rule of an HTTPRoute or a GRPCRoute, as attached to one listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// `httproute.NAMESPACE.NAME.RULE` or `grpcroute…`, for logs and metrics.
    pub name: String,
    /// Which kind of route it is from: decides how requests are matched and how errors are told.
    pub kind: RuleKind,
    /// Hosts it serves, each already within the listener's hostname. Empty: every host of the listener.
    pub hostnames: Vec<Hostname>,
    /// Any of these must match; never empty (a rule written without matches has one that matches everything).
    pub matches: Vec<Match>,
    /// Applied in this order.
    pub filters: Vec<Filter>,
    /// Filters of single BackendRefs, in the order of the service's; empty when none has any.
    pub backend_filters: Vec<Vec<Filter>>,
    /// Limits, and what is done when a request fails.
    pub policy: Policy,
    /// What answers.
    pub action: Action,
}

/// Limits of a rule's requests, and what is done when one fails.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// For the whole of a request, to the end of its response; none for no limit.
    pub request_timeout: Option<Duration>,
    /// For one try, to the end of its response; none for no limit.
    pub backend_timeout: Option<Duration>,
    /// When a request is sent again.
    pub retry: Option<Retry>,
}

/// When a request is sent again: where its connection fails, where a try takes too long, and for some statuses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retry {
    /// Statuses of responses that count as failures, 400 to 599.
    pub codes: Vec<http::StatusCode>,
    /// How often at most, after the first try; at least 1.
    pub attempts: u32,
    /// Least time before the first retry; it doubles with each one.
    pub backoff: Duration,
}

/// Kind of the route a rule is from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RuleKind {
    /// HTTPRoute.
    Http,
    /// GRPCRoute.
    Grpc,
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Match {
    /// On the request's path.
    pub path: PathMatch,
    /// On the request's method.
    pub method: Option<http::Method>,
    /// On headers; of several with the same name only the first counts, and is the only one here.
    pub headers: Vec<HeaderMatch>,
    /// On query parameters; of several with the same name only the first counts, and is the only one here.
    pub query: Vec<QueryMatch>,
}

/// A condition on the path. A GRPCRoute's method match becomes the path that a gRPC request has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole segments at the beginning of the path; without a trailing slash, `/` is the empty string.
    Prefix(String),
    /// The whole path, as a regular expression.
    Regex(Pattern),
    /// Service and method of a gRPC request. At least one of them is given; both given exactly is `Exact`.
    Grpc {
        /// Full name of the service, with its package.
        service: Option<TextMatch>,
        /// Name of the method.
        method: Option<TextMatch>,
    },
}

/// A condition on a text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TextMatch {
    /// The text is this one.
    Exact(String),
    /// The whole text matches.
    Regex(Pattern),
}

/// A regular expression that is known to compile; it must match the whole text. Equal when written alike.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern(pub String);

/// A condition on a header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderMatch {
    /// Name of the header.
    pub name: http::HeaderName,
    /// On its value; several lines of the same name count as one, joined by commas.
    pub value: TextMatch,
}

/// A condition on a query parameter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueryMatch {
    /// Name of the parameter, case-sensitive.
    pub name: String,
    /// On its first value, percent-decoded.
    pub value: TextMatch,
}

/// What is done to a request or its response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Filter {
    /// RequestHeaderModifier.
    RequestHeaders(HeaderModifier),
    /// ResponseHeaderModifier.
    ResponseHeaders(HeaderModifier),
    /// RequestRedirect: answers, so nothing after it is reached.
    Redirect(Redirect),
    /// URLRewrite.
    Rewrite(Rewrite),
}

/// Changes to headers: first `remove`, then `set`, then `add`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderModifier {
    /// Replaces all lines of the name.
    pub set: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Adds a line.
    pub add: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Removes all lines of the name.
    pub remove: Vec<http::HeaderName>,
}

/// A RequestRedirect filter. What is not given is taken from the request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// New scheme.
    pub scheme: Option<http::uri::Scheme>,
    /// New host.
    pub hostname: Option<String>,
    /// New path.
    pub path: Option<PathModifier>,
    /// New port. When not given: the well-known port of `scheme` when that is given, else the listener's.
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: http::StatusCode,
}

/// A URLRewrite filter. What is not given stays as it is in the request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rewrite {
    /// New host.
    pub hostname: Option<String>,
    /// New path.
    pub path: Option<PathModifier>,
}

/// A change of path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathModifier {
    /// The path becomes this.
    Full(String),
    /// The matched prefix becomes this. Only in rules whose matches are all by prefix.
    Prefix(String),
}

/// What answers a request that matched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// A service.
    Forward(Arc<Service>),
    /// A filter of this rule answers every request.
    Answered,
    /// The rule has no backendRefs, and no filter that answers: 500, or UNIMPLEMENTED for gRPC.
    NoBackend,
    /// The rule uses something that cannot be honoured; the sentence says what. 500, or UNAVAILABLE for gRPC.
    Unusable(String),
}

/// A weighted set of BackendRefs: the unit of balancing, pools, health and metrics.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// `httproute.NAMESPACE.NAME.RULE`, `grpcroute…`, `tlsroute…`, or the name of a combined service.
    pub name: String,
    /// Never empty.
    pub backends: Vec<BackendRef>,
}

/// One BackendRef of a service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BackendRef {
    /// `NAMESPACE/NAME:PORT`, for logs, errors and metrics.
    pub name: String,
    /// 0 to 1,000,000. Zero gets no request.
    pub weight: u32,
    /// Where its requests go.
    pub target: Target,
}

/// Where the requests of a BackendRef go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// To endpoints; none ready answers 503, or UNAVAILABLE for gRPC.
    Endpoints {
        /// What they speak.
        protocol: AppProtocol,
        /// Ready endpoints, sorted.
        endpoints: Vec<SocketAddr>,
    },
    /// The reference is invalid; the sentence says why. 500, or UNAVAILABLE for gRPC.
    Invalid(String),
}

/// What a backend speaks (`appProtocol` of a Service's port).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AppProtocol {
    /// HTTP/1.1 for HTTP requests, HTTP/2 by prior knowledge for gRPC.
    Http,
    /// HTTP/2 by prior knowledge (`kubernetes.io/h2c`).
    H2c,
}
