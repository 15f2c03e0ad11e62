//! What objects are told: conditions, with the types and reasons of the Gateway API.

use std::{collections::BTreeMap, net::IpAddr};

use crate::api::{Key, gateway::RouteKind, route::ParentRef};

/// Status of all our objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statuses {
    /// Of our GatewayClasses, by name.
    pub classes: BTreeMap<String, Vec<Condition>>,
    /// Of our Gateways.
    pub gateways: BTreeMap<Key, GatewayStatus>,
    /// Of routes with a parent of ours, by kind and name.
    pub routes: BTreeMap<(&'static str, Key), Vec<ParentStatus>>,
}

/// Status of a Gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayStatus {
    /// Addresses it is reached at.
    pub addresses: Vec<IpAddr>,
    /// Accepted, `InsecureFrontendValidationMode` when true, Programmed.
    pub conditions: Vec<Condition>,
    /// Its listeners, in the order of the spec.
    pub listeners: Vec<ListenerStatus>,
}

/// Status of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Kinds of routes that may be attached.
    pub supported_kinds: Vec<RouteKind>,
    /// How many routes are attached and accepted.
    pub attached_routes: usize,
    /// Accepted, Conflicted, `OverlappingTLSConfig` when true, Programmed, ResolvedRefs.
    pub conditions: Vec<Condition>,
}

/// Status of a route towards one parent.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentStatus {
    /// The parent as the route names it.
    pub parent: ParentRef,
    /// Accepted, PartiallyInvalid when true, ResolvedRefs.
    pub conditions: Vec<Condition>,
}

/// A condition. The time of its last transition is for whoever writes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    /// Type.
    pub condition_type: &'static str,
    /// Status; `Unknown` is never ours.
    pub status: bool,
    /// Reason.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
    /// Generation of the object that this is about; none for objects from files.
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition that holds: `good` is its reason if there is no problem.
    pub(super) fn new(
        condition_type: &'static str,
        problem: Option<&Problem>,
        good: Reason,
        generation: Option<i64>,
    ) -> Self {
        let (status, reason, message) = match problem {
            None => (true, good.name, String::new()),
            Some(problem) => (false, problem.reason.name, problem.message.clone()),
        };
        Self { condition_type, status, reason, message, observed_generation: generation }
    }
}

/// Why something is not as asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    /// One sentence in lower case.
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A reason of a condition, and the code that diagnostics have for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Reason {
    pub(super) name: &'static str,
    pub(super) code: &'static str,
}

macro_rules! reasons {
    ($($constant:ident $name:literal $code:literal,)*) => {
        $(pub(super) const $constant: Reason = Reason { name: $name, code: $code };)*
    };
}
reasons! {
    ACCEPTED "Accepted" "accepted",
    ADDRESS_NOT_ASSIGNED "AddressNotAssigned" "address-not-assigned",
    ADDRESS_NOT_USABLE "AddressNotUsable" "address-not-usable",
    BACKEND_NOT_FOUND "BackendNotFound" "backend-not-found",
    CONFIGURATION_CHANGED "ConfigurationChanged" "insecure-frontend-validation",
    HOSTNAME_CONFLICT "HostnameConflict" "hostname-conflict",
    INVALID "Invalid" "not-programmed",
    INVALID_CA_CERTIFICATE_KIND "InvalidCACertificateKind" "invalid-ca-certificate-kind",
    INVALID_CA_CERTIFICATE_REF "InvalidCACertificateRef" "invalid-ca-certificate-ref",
    INVALID_CERTIFICATE_REF "InvalidCertificateRef" "invalid-certificate-ref",
    INVALID_KIND "InvalidKind" "invalid-kind",
    INVALID_PARAMETERS "InvalidParameters" "invalid-parameters",
    INVALID_ROUTE_KINDS "InvalidRouteKinds" "invalid-route-kinds",
    LISTENERS_NOT_VALID "ListenersNotValid" "listeners-not-valid",
    NO_CONFLICTS "NoConflicts" "no-conflicts",
    NO_MATCHING_LISTENER_HOSTNAME "NoMatchingListenerHostname" "no-matching-listener-hostname",
    NO_MATCHING_PARENT "NoMatchingParent" "no-matching-parent",
    NOT_ALLOWED_BY_LISTENERS "NotAllowedByListeners" "not-allowed-by-listeners",
    NO_VALID_CA_CERTIFICATE "NoValidCACertificate" "no-valid-ca-certificate",
    OVERLAPPING_CERTIFICATES "OverlappingCertificates" "overlapping-certificates",
    OVERLAPPING_HOSTNAMES "OverlappingHostnames" "overlapping-hostnames",
    PORT_UNAVAILABLE "PortUnavailable" "port-unavailable",
    PROGRAMMED "Programmed" "programmed",
    PROTOCOL_CONFLICT "ProtocolConflict" "protocol-conflict",
    REF_NOT_PERMITTED "RefNotPermitted" "ref-not-permitted",
    RESOLVED_REFS "ResolvedRefs" "resolved-refs",
    SUPPORTED_VERSION "SupportedVersion" "supported-version",
    UNSUPPORTED_ADDRESS "UnsupportedAddress" "unsupported-address",
    UNSUPPORTED_PROTOCOL "UnsupportedProtocol" "unsupported-protocol",
    UNSUPPORTED_VALUE "UnsupportedValue" "unsupported-value",
}
