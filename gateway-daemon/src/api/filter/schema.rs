//! What filters look like.

use crate::api::{
    NAME_MAX,
    format::Format,
    route::{BACKEND_OBJECT_REF, GROUP, KIND, NAME, PORT},
    schema::{List, Object, Schema},
};

pub(in crate::api) const HTTP_FILTERS: Schema = Schema::List(&List::new(0, 16, Schema::Object(&HTTP_FILTER)));
pub(in crate::api) const GRPC_FILTERS: Schema = Schema::List(&List::new(0, 16, Schema::Object(&GRPC_FILTER)));

const HTTP_FILTER: Object = Object::new(
    &[(
        "type",
        Schema::OneOf(&[
            "RequestHeaderModifier",
            "ResponseHeaderModifier",
            "RequestMirror",
            "RequestRedirect",
            "URLRewrite",
            "ExtensionRef",
            "CORS",
            "ExternalAuth",
        ]),
    )],
    &[
        ("requestHeaderModifier", HEADER_MODIFIER),
        ("responseHeaderModifier", HEADER_MODIFIER),
        ("requestMirror", MIRROR),
        ("requestRedirect", REDIRECT),
        ("urlRewrite", REWRITE),
        ("extensionRef", EXTENSION),
        ("cors", CORS),
        ("externalAuth", EXTERNAL_AUTH),
    ],
);

const GRPC_FILTER: Object = Object::new(
    &[(
        "type",
        Schema::OneOf(&["RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef"]),
    )],
    &[
        ("requestHeaderModifier", HEADER_MODIFIER),
        ("responseHeaderModifier", HEADER_MODIFIER),
        ("requestMirror", MIRROR),
        ("extensionRef", EXTENSION),
    ],
);

const HEADER_MODIFIER: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("set", Schema::List(&List { min: 0, max: 16, of: HEADER, unique: &["name"] })),
        ("add", Schema::List(&List { min: 0, max: 16, of: HEADER, unique: &["name"] })),
        ("remove", Schema::List(&List::new(0, 16, TOKEN))),
    ],
));

const HEADER: Schema = Schema::Object(&Object::new(&[("name", TOKEN), ("value", HEADER_VALUE)], &[]));

/// The name of a header or a query parameter.
pub(in crate::api) const TOKEN: Schema = Schema::Text(1, 256, Format::Token);
const HEADER_VALUE: Schema = Schema::Text(1, 4096, Format::HeaderValue);

const MIRROR: Schema = Schema::Object(&Object::new(
    &[("backendRef", Schema::Object(&BACKEND_OBJECT_REF))],
    &[("percent", Schema::Int(0, 100)), ("fraction", FRACTION)],
));

const FRACTION: Schema = Schema::Object(&Object::new(
    &[("numerator", Schema::Int(0, i32::MAX as i64))],
    &[("denominator", Schema::Int(1, i32::MAX as i64))],
));

const REDIRECT: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("scheme", Schema::OneOf(&["http", "https"])),
        ("hostname", Schema::Text(1, NAME_MAX, Format::ExactHostname)),
        ("path", PATH_MODIFIER),
        ("port", PORT),
        ("statusCode", Schema::IntOf(&[301, 302, 303, 307, 308])),
    ],
));

const REWRITE: Schema = Schema::Object(&Object::new(
    &[],
    &[("hostname", Schema::Text(1, NAME_MAX, Format::ExactHostname)), ("path", PATH_MODIFIER)],
));

const PATH_MODIFIER: Schema = Schema::Object(&Object::new(
    &[("type", Schema::OneOf(&["ReplaceFullPath", "ReplacePrefixMatch"]))],
    &[
        ("replaceFullPath", Schema::Text(0, 1024, Format::Free)),
        ("replacePrefixMatch", Schema::Text(0, 1024, Format::Free)),
    ],
));

const EXTENSION: Schema =
    Schema::Object(&Object::new(&[("group", GROUP), ("kind", KIND), ("name", NAME)], &[]));

const CORS: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("allowCredentials", Schema::Bool),
        ("allowHeaders", Schema::List(&List::new(0, 64, TOKEN))),
        (
            "allowMethods",
            Schema::List(&List::new(
                0,
                9,
                Schema::OneOf(&[
                    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*",
                ]),
            )),
        ),
        ("allowOrigins", Schema::List(&List::new(0, 64, Schema::Text(1, NAME_MAX, Format::Free)))),
        ("exposeHeaders", Schema::List(&List::new(0, 64, TOKEN))),
        ("maxAge", Schema::Int(1, i32::MAX as i64)),
    ],
));

const EXTERNAL_AUTH: Schema = Schema::Object(&Object::new(
    &[("protocol", Schema::OneOf(&["HTTP", "GRPC"])), ("backendRef", Schema::Object(&BACKEND_OBJECT_REF))],
    &[
        ("forwardBody", Schema::Object(&Object::new(&[], &[("maxSize", Schema::Int(0, i32::MAX as i64))]))),
        ("grpc", Schema::Object(&Object::new(&[], &[("allowedHeaders", AUTH_HEADERS)]))),
        (
            "http",
            Schema::Object(&Object::new(
                &[],
                &[
                    ("path", Schema::Text(0, 1024, Format::Free)),
                    ("allowedHeaders", AUTH_HEADERS),
                    ("allowedResponseHeaders", AUTH_HEADERS),
                ],
            )),
        ),
    ],
));

const AUTH_HEADERS: Schema = Schema::List(&List::new(0, 64, Schema::Text(0, 256, Format::Free)));
