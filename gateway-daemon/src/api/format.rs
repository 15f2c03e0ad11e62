//! Formats of texts.

use std::net::IpAddr;

/// What a text must look like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    /// Anything.
    Free,
    /// A label of DNS (RFC 1123): what namespaces are called.
    Label,
    /// Labels joined by dots: what most objects, listeners and rules are called.
    Subdomain,
    /// A subdomain, or nothing: groups, where nothing is the core group.
    Group,
    /// A kind: letters, digits and dashes, a letter first.
    Kind,
    /// A host, or `*.` and the end of many hosts. In lower case, not an IP address.
    Hostname,
    /// A host, without a wildcard.
    ExactHostname,
    /// An IPv4 or IPv6 address.
    Address,
    /// The name of a header (RFC 9110, token).
    Token,
    /// The value of a header.
    HeaderValue,
    /// A duration as GEP-2257 has it: `1h30m`, `500ms`.
    Duration,
    /// Base64 with padding.
    Base64,
    /// A point in time (RFC 3339, UTC, whole seconds), as the API server writes it.
    Timestamp,
    /// `DOMAIN/PATH`, which says who serves a GatewayClass.
    Controller,
    /// A protocol of the Gateway API, or a name with a domain for others. The API server takes any word here, to be
    /// told off by a condition; in a file a slip of the pen is better caught at once.
    Protocol,
}

impl Format {
    /// What is wrong with a text, to follow the name of its field; nothing if it is of this format.
    pub(crate) fn fault(self, text: &str) -> Option<&'static str> {
        let (good, sentence) = match self {
            Self::Free => (true, ""),
            Self::Label => (
                text.len() <= 63 && is_label(text),
                "must be lower-case letters, digits and dashes, with a letter or digit at both ends, at most 63",
            ),
            Self::Subdomain => (
                is_subdomain(text),
                "must be lower-case letters, digits, dashes and dots, with a letter or digit at both ends of each part",
            ),
            Self::Group => (
                text.is_empty() || is_subdomain(text),
                "must be a group such as `gateway.networking.k8s.io`, or empty",
            ),
            Self::Kind => (is_kind(text), "must be letters, digits and dashes, a letter first"),
            Self::Hostname => (
                is_hostname(text.strip_prefix("*.").unwrap_or(text)),
                "must be a hostname in lower case, without a port, not an IP address; a wildcard only as `*.` in front",
            ),
            Self::ExactHostname => (
                is_hostname(text),
                "must be a hostname in lower case, without a port or wildcard, not an IP address",
            ),
            Self::Address => (text.parse::<IpAddr>().is_ok(), "must be an IPv4 or IPv6 address"),
            Self::Token => (
                text.bytes().all(is_token_byte),
                "must be the name of a header or parameter: letters, digits and !#$%&'*+-.^_`|~",
            ),
            Self::HeaderValue => (
                http::HeaderValue::from_str(text).is_ok(),
                "must be the value of a header: no control characters and no line breaks",
            ),
            Self::Duration => {
                (duration_millis(text).is_some(), "must be a duration such as `10s`, `500ms` or `1h30m`")
            }
            Self::Base64 => (is_base64(text), "must be base64; a text as it is goes under `stringData`"),
            Self::Timestamp => (is_timestamp(text), "must be a time such as `2026-01-31T12:00:00Z`"),
            Self::Controller => (
                text.split_once('/').is_some_and(|(domain, path)| is_subdomain(domain) && !path.is_empty()),
                "must be a domain, a slash and a path, such as `gatewayd.dev/gateway`",
            ),
            Self::Protocol => (
                text.split_once('/').map_or_else(
                    || ["HTTP", "HTTPS", "TLS", "TCP", "UDP"].contains(&text),
                    |(domain, name)| is_subdomain(domain) && is_kind(name),
                ),
                "must be HTTP, HTTPS, TLS, TCP, UDP, or a name with a domain such as `example.com/bar`",
            ),
        };
        (!good).then_some(sentence)
    }
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
        && text.bytes().next().is_some_and(alphanumeric)
        && text.bytes().next_back().is_some_and(alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_hostname(text: &str) -> bool {
    text.split('.').all(|label| label.len() <= 63 && is_label(label)) && text.parse::<IpAddr>().is_err()
}

fn is_kind(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && !text.ends_with('-')
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    let joined: String = text.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(joined).is_ok()
}

fn is_timestamp(text: &str) -> bool {
    text.len() == 20
        && text.bytes().zip(b"dddd-dd-ddTdd:dd:ddZ").all(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            _ => byte == *shape,
        })
}

/// A duration of GEP-2257 in milliseconds: one to four numbers of up to five digits, each with its unit.
pub(crate) fn duration_millis(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=5).contains(&digits) {
            return None;
        }
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let (unit, after) = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1000)]
            .iter()
            .find_map(|(name, millis)| after.strip_prefix(name).map(|after| (millis, after)))?;
        total += number * unit;
        rest = after;
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}
