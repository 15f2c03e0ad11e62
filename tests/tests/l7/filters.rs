//! RequestHeaderModifier, ResponseHeaderModifier and RequestRedirect.

use gateway_tests::client::http::Answer;
use gateway_tests::http::full;
use gateway_tests::tls::Identity;
use gateway_tests::topology::Family;

use crate::stand::{TLS_NAME, lab, route, rule, start, to, ways};

const MODIFY: &str = "\
    {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: set}], \
     add: [{name: X-Add, value: added}], remove: [x-remove]}}, \
    {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: Content-Type, value: text/lab}], \
     add: [{name: X-Add, value: added}]}}";

/// What the backend sends as `content-type` is kept and added to, or removed.
const ADD: &str =
    "{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: content-type, value: text/lab}]}}";
const REMOVE: &str = "{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [Content-Type]}}";

/// Path of a request, the inside of its rule's `requestRedirect`, status, and Location after scheme and `://` where
/// the filter names no scheme.
const REDIRECTS: &[(&str, &str, u16, &str)] = &[
    ("/r1/x?q=1", "scheme: https, statusCode: 301", 301, "https://filter.example/r1/x?q=1"),
    ("/r2/x", "hostname: other.example", 302, "other.example/r2/x"),
    ("/r3/x", "port: 8443, statusCode: 307", 307, "filter.example:8443/r3/x"),
    (
        "/r4/x?q=1",
        "path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}, statusCode: 308",
        308,
        "filter.example/new/x?q=1",
    ),
    (
        "/r5/x/y",
        "path: {type: ReplaceFullPath, replaceFullPath: /all}, statusCode: 303",
        303,
        "filter.example/all",
    ),
];

fn routes() -> String {
    let backends = format!("{}, {}", to("backend-1", 1), to("h2c-2", 1));
    let mut rules: String = [("/modify", MODIFY), ("/add", ADD), ("/remove", REMOVE)]
        .map(|(path, filters)| rule(&format!("{{path: {{value: {path}}}}}"), filters, &backends))
        .concat();
    for (path, redirect, ..) in REDIRECTS {
        let prefix = &path[..3];
        let filter = format!("{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}");
        rules += &rule(&format!("{{path: {{value: {prefix}}}}}"), &filter, "");
    }
    route("HTTPRoute", "filters", &["filter.example"], &rules)
}

#[test]
fn headers_are_modified_and_redirects_answered_in_every_protocol() {
    let (lab, _backends) = lab(1);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let _daemon = start(&lab, &identity, &[("routes.yaml", &routes())]);
    for (family, way) in Family::ALL.into_iter().flat_map(|family| ways(&identity).map(|way| (family, way))) {
        lab.client().block_on(|| async {
            let context = format!("{family}, {}", way.name);
            let mut connection = way.open(family).await;
            // Both protocols of backends, by weight: 16 requests miss one with a chance of 2^-15.
            for _ in 0..16 {
                let request = way
                    .request("GET", "filter.example", "/modify")
                    .header("x-set", "original")
                    .header("x-add", "original")
                    .header("x-remove", "original")
                    .header("x-other", "original");
                let answer =
                    connection.ask(request.body(full("")).expect("a request")).await.expect("an answer");
                let headers = answer.report().expect("a report").headers;
                let seen = ["x-set", "x-add", "x-remove", "x-other"]
                    .map(|name| headers.get(name).map(String::as_str));
                assert_eq!(seen, [Some("set"), Some("original,added"), None, Some("original")], "{context}");
                assert_eq!(values(&answer, "content-type"), ["text/lab"], "{context}");
                assert_eq!(values(&answer, "x-add"), ["added"], "{context}");
            }
            let answer =
                connection.get(&format!("{}://filter.example/add", way.scheme)).await.expect("an answer");
            assert_eq!(values(&answer, "content-type"), ["application/json", "text/lab"], "{context}");
            let answer =
                connection.get(&format!("{}://filter.example/remove", way.scheme)).await.expect("an answer");
            assert!(answer.report().is_ok() && values(&answer, "content-type").is_empty(), "{context}");
            for (path, _, status, location) in REDIRECTS {
                let uri = format!("{}://filter.example{path}", way.scheme);
                let answer = connection.get(&uri).await.expect("an answer");
                let expected = match location.split_once("://") {
                    Some(_) => (*location).to_owned(),
                    None => format!("{}://{location}", way.scheme),
                };
                let seen = answer.headers.get("location").and_then(|value| value.to_str().ok());
                assert_eq!(
                    (answer.status.as_u16(), seen),
                    (*status, Some(expected.as_str())),
                    "{context} {path}"
                );
            }
        });
    }
}

/// The lines of a header.
fn values<'answer>(answer: &'answer Answer, name: &str) -> Vec<&'answer http::HeaderValue> {
    answer.headers.get_all(name).iter().collect()
}
