//! GatewayClass and Gateway.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Faults, GATEWAY_GROUP, Kind, NAME_MAX,
    format::Format,
    route::{GROUP, KIND, NAME, NAMESPACE, PORT, SECTION_NAME},
    schema::{List, Object, Schema},
};

/// Spec of a GatewayClass.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClass {
    /// Who serves it.
    pub controller_name: String,
    /// Parameters of the implementation.
    pub parameters_ref: Option<ParametersRef>,
}

/// A reference to parameters; gatewayd has none.
#[derive(Clone, Debug, Deserialize)]
pub struct ParametersRef {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// Spec of a Gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Name of its GatewayClass.
    pub gateway_class_name: String,
    /// Listeners, by name.
    pub listeners: Vec<Listener>,
    /// Addresses asked for.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// TLS for all listeners.
    #[serde(default)]
    pub tls: GatewayTls,
    /// For resources made on behalf of the Gateway.
    #[serde(default)]
    pub infrastructure: Infrastructure,
    /// Which ListenerSets may add listeners.
    #[serde(default)]
    pub allowed_listeners: AllowedListeners,
    /// Whether routes that name no Gateway get this one.
    pub default_scope: Option<String>,
}

/// An address of a Gateway.
#[derive(Clone, Debug, Deserialize)]
pub struct Address {
    /// `IPAddress`, or another type.
    #[serde(rename = "type", default = "ip_address")]
    pub address_type: String,
    /// Empty asks for any address.
    #[serde(default)]
    pub value: String,
}

/// TLS of a Gateway. What is not served yet is only looked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct GatewayTls {
    /// Towards clients, on all listeners of protocol HTTPS.
    #[serde(default)]
    pub frontend: FrontendTls,
    /// Towards backends: the certificate to show them.
    pub backend: Option<serde_json::Value>,
}

/// TLS towards clients.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// On every port that `per_port` does not have.
    #[serde(default)]
    pub default: TlsConfig,
    /// On single ports, instead of `default`.
    #[serde(default)]
    pub per_port: Vec<PortTls>,
}

/// TLS towards clients, on a port.
#[derive(Clone, Debug, Deserialize)]
pub struct PortTls {
    /// The port.
    pub port: u16,
    /// What it has.
    pub tls: TlsConfig,
}

/// TLS towards clients, on some ports.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TlsConfig {
    /// Validation of their certificates; none asks for no certificate.
    pub validation: Option<FrontendValidation>,
}

/// How certificates of clients are validated.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendValidation {
    /// Certificates of those who may issue them; at least one.
    pub ca_certificate_refs: Vec<CaRef>,
    /// `AllowValidOnly` when not given, or `AllowInsecureFallback`.
    pub mode: Option<String>,
}

impl FrontendValidation {
    /// Whether clients are let in without a valid certificate as well.
    pub fn is_insecure(&self) -> bool {
        self.mode.as_deref() == Some("AllowInsecureFallback")
    }
}

/// A reference to an object with certificates of authorities.
#[derive(Clone, Debug, Deserialize)]
pub struct CaRef {
    /// Group; empty for core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; none for the one of the object that refers.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// For resources made on behalf of a Gateway.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Infrastructure {
    /// Parameters of the implementation.
    pub parameters_ref: Option<ParametersRef>,
}

/// Which ListenerSets may add listeners.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AllowedListeners {
    /// By namespace.
    #[serde(default)]
    pub namespaces: Namespaces,
}

/// A listener of a Gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Its name, unique in the Gateway.
    pub name: String,
    /// Only this host, or the hosts of this wildcard.
    pub hostname: Option<String>,
    /// Port.
    pub port: u16,
    /// Protocol.
    pub protocol: String,
    /// TLS.
    pub tls: Option<ListenerTls>,
    /// Which routes may be attached.
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
}

/// TLS of a listener.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTls {
    /// `Terminate` when not given.
    pub mode: Option<String>,
    /// Certificates to show.
    #[serde(default)]
    pub certificate_refs: Vec<SecretRef>,
    /// Options of the implementation; gatewayd has none.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// A reference to a Secret.
#[derive(Clone, Debug, Deserialize)]
pub struct SecretRef {
    /// Group; empty for core.
    #[serde(default)]
    pub group: String,
    /// Kind.
    #[serde(default = "secret_kind")]
    pub kind: String,
    /// Namespace; none for the Gateway's own.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Which routes may be attached to a listener.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AllowedRoutes {
    /// By namespace.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// By kind; empty for all that the protocol can have.
    #[serde(default)]
    pub kinds: Vec<RouteKind>,
}

/// A choice of namespaces.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Namespaces {
    /// `Same`, `All`, `Selector`, or (of ListenerSets) `None`; not given is the default of each.
    pub from: Option<String>,
    /// With `Selector`.
    pub selector: Option<LabelSelector>,
}

/// A choice by labels. All of it must hold; empty chooses everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must be there as given.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(default)]
    pub match_expressions: Vec<LabelExpression>,
}

/// A condition on a label.
#[derive(Clone, Debug, Deserialize)]
pub struct LabelExpression {
    /// Name of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A kind of route.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub struct RouteKind {
    /// Group.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// Kind.
    pub kind: String,
}

impl Kind for GatewayClass {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1", "v1beta1"];
    const KIND: &'static str = "GatewayClass";
    const NAMESPACED: bool = false;
    const SCHEMA: &'static Object = &Object::new(
        &[("controllerName", Schema::Text(1, NAME_MAX, Format::Controller))],
        &[
            ("description", Schema::Text(0, 64, Format::Free)),
            (
                "parametersRef",
                Schema::Object(&Object::new(
                    &[("group", GROUP), ("kind", KIND), ("name", NAME)],
                    &[("namespace", NAMESPACE)],
                )),
            ),
        ],
    );
}

impl Kind for Gateway {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1", "v1beta1"];
    const KIND: &'static str = "Gateway";
    const SCHEMA: &'static Object = &GATEWAY;

    fn rules(&self, faults: &mut Faults) {
        for (index, listener) in self.listeners.iter().enumerate() {
            listener_rules(listener, &format!("spec.listeners[{index}]"), faults);
            let same = |other: &Listener| {
                (other.port, &other.protocol, &other.hostname)
                    == (listener.port, &listener.protocol, &listener.hostname)
            };
            if let Some(first) = self.listeners[..index].iter().position(same) {
                let message = format!(
                    "has the same port, protocol and hostname as spec.listeners[{first}]: one must differ"
                );
                faults.add(format!("spec.listeners[{index}]"), "not-unique", &message);
            }
        }
        for (index, address) in self.addresses.iter().enumerate() {
            let wrong = match address.address_type.as_str() {
                _ if address.value.is_empty() => None,
                "IPAddress" => Format::Address.fault(&address.value),
                "Hostname" => Format::ExactHostname.fault(&address.value),
                _ => None,
            };
            if let Some(wrong) = wrong {
                faults.add(format!("spec.addresses[{index}].value"), "bad-format", wrong);
            }
        }
    }
}

fn listener_rules(listener: &Listener, path: &str, faults: &mut Faults) {
    let mode = listener.tls.as_ref().and_then(|tls| tls.mode.as_deref());
    match (listener.protocol.as_str(), &listener.tls) {
        ("HTTP" | "TCP" | "UDP", Some(_)) => {
            let message = format!("must not be given for protocol {}", listener.protocol);
            faults.add(format!("{path}.tls"), "conflicting-fields", &message);
        }
        ("HTTPS", _) if mode == Some("Passthrough") => {
            faults.add(
                format!("{path}.tls.mode"),
                "conflicting-fields",
                "must be Terminate for protocol HTTPS",
            );
        }
        ("TLS", None) => faults.add(path, "missing-field", "needs `tls`, since its protocol is TLS"),
        (_, Some(tls))
            if mode != Some("Passthrough") && tls.certificate_refs.is_empty() && tls.options.is_empty() =>
        {
            faults.add(format!("{path}.tls"), "missing-field", "needs certificateRefs to terminate TLS");
        }
        _ => {}
    }
    if matches!(listener.protocol.as_str(), "TCP" | "UDP") && listener.hostname.is_some() {
        let message = format!("must not be given for protocol {}", listener.protocol);
        faults.add(format!("{path}.hostname"), "conflicting-fields", &message);
    }
}

fn ip_address() -> String {
    "IPAddress".to_owned()
}

fn secret_kind() -> String {
    "Secret".to_owned()
}

fn gateway_group() -> String {
    GATEWAY_GROUP.to_owned()
}

const GATEWAY: Object = Object::new(
    &[
        ("gatewayClassName", NAME),
        ("listeners", Schema::List(&List { min: 1, max: 64, of: LISTENER, unique: &["name"] })),
    ],
    &[
        ("addresses", Schema::List(&List { min: 0, max: 16, of: ADDRESS, unique: &["type", "value"] })),
        ("allowedListeners", Schema::Object(&Object::new(&[], &[("namespaces", LISTENER_NAMESPACES)]))),
        ("defaultScope", Schema::OneOf(&["All", "None"])),
        ("infrastructure", INFRASTRUCTURE),
        ("tls", Schema::Object(&Object::new(&[], &[("backend", BACKEND_TLS), ("frontend", FRONTEND_TLS)]))),
    ],
);

const ADDRESS: Schema = Schema::Object(&Object::new(
    &[],
    &[("type", Schema::Text(1, NAME_MAX, Format::Free)), ("value", Schema::Text(0, NAME_MAX, Format::Free))],
));

const LISTENER: Schema = Schema::Object(&Object::new(
    &[("name", SECTION_NAME), ("port", PORT), ("protocol", Schema::Text(1, 255, Format::Protocol))],
    &[
        ("hostname", Schema::Text(1, NAME_MAX, Format::Hostname)),
        ("tls", LISTENER_TLS),
        (
            "allowedRoutes",
            Schema::Object(&Object::new(
                &[],
                &[("namespaces", ROUTE_NAMESPACES), ("kinds", Schema::List(&List::new(0, 8, ROUTE_KIND)))],
            )),
        ),
    ],
));

const LISTENER_TLS: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("mode", Schema::OneOf(&["Terminate", "Passthrough"])),
        ("certificateRefs", Schema::List(&List::new(0, 64, SECRET_REF))),
        ("options", Schema::Map(16, &Schema::Text(0, 4096, Format::Free))),
    ],
));

const SECRET_REF: Schema = Schema::Object(&Object::new(
    &[("name", NAME)],
    &[("group", GROUP), ("kind", KIND), ("namespace", NAMESPACE)],
));

const ROUTE_KIND: Schema = Schema::Object(&Object::new(&[("kind", KIND)], &[("group", GROUP)]));

const ROUTE_NAMESPACES: Schema = Schema::Object(&Object::new(
    &[],
    &[("from", Schema::OneOf(&["All", "Same", "Selector"])), ("selector", SELECTOR)],
));

const LISTENER_NAMESPACES: Schema = Schema::Object(&Object::new(
    &[],
    &[("from", Schema::OneOf(&["All", "Same", "Selector", "None"])), ("selector", SELECTOR)],
));

const SELECTOR: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("matchLabels", Schema::Map(usize::MAX, &Schema::Text(0, 63, Format::Free))),
        ("matchExpressions", Schema::List(&List::new(0, usize::MAX, EXPRESSION))),
    ],
));

const EXPRESSION: Schema = Schema::Object(&Object::new(
    &[
        ("key", Schema::Text(1, 317, Format::Free)),
        ("operator", Schema::OneOf(&["In", "NotIn", "Exists", "DoesNotExist"])),
    ],
    &[("values", Schema::List(&List::new(0, usize::MAX, Schema::Text(0, 63, Format::Free))))],
));

const INFRASTRUCTURE: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("annotations", Schema::Map(16, &Schema::Text(0, 4096, Format::Free))),
        ("labels", Schema::Map(8, &Schema::Text(0, 63, Format::Free))),
        (
            "parametersRef",
            Schema::Object(&Object::new(&[("group", GROUP), ("kind", KIND), ("name", NAME)], &[])),
        ),
    ],
));

const BACKEND_TLS: Schema = Schema::Object(&Object::new(&[], &[("clientCertificateRef", SECRET_REF)]));

const FRONTEND_TLS: Schema = Schema::Object(&Object::new(
    &[("default", FRONTEND_VALIDATION)],
    &[(
        "perPort",
        Schema::List(&List {
            min: 0,
            max: 64,
            of: Schema::Object(&Object::new(&[("port", PORT), ("tls", FRONTEND_VALIDATION)], &[])),
            unique: &["port"],
        }),
    )],
));

const FRONTEND_VALIDATION: Schema = Schema::Object(&Object::new(
    &[],
    &[(
        "validation",
        Schema::Object(&Object::new(
            &[("caCertificateRefs", Schema::List(&List::new(1, 16, CA_REF)))],
            &[("mode", Schema::OneOf(&["AllowValidOnly", "AllowInsecureFallback"]))],
        )),
    )],
));

const CA_REF: Schema = Schema::Object(&Object::new(
    &[("group", GROUP), ("kind", KIND), ("name", NAME)],
    &[("namespace", NAMESPACE)],
));
