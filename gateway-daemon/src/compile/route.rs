//! HTTPRoute and GRPCRoute: in order of precedence to the listeners they are attached to.

use super::{
    Context, age,
    attach::{Parent, attach},
    by_age,
    combine::Services,
    cross::CrossServing,
    gateway::{Gateway, hostname},
    grpc, http,
    status::{ACCEPTED, Condition, ParentStatus, Problem, RESOLVED_REFS, Statuses, UNSUPPORTED_VALUE},
};
use crate::{
    api::{
        Kind, Object, Severity,
        grpc::GrpcRoute,
        http::HttpRoute,
        route::{ObjectRef, ParentRef},
    },
    model::l7::{Hostname, Rule},
};

/// What a route's rules came to, for its status.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Why no rule can be honoured.
    pub(super) unsupported: Option<Problem>,
    /// Which rules cannot be honoured, when others can.
    pub(super) partially_invalid: Option<String>,
    /// The first reference that does not resolve.
    pub(super) unresolved: Option<Problem>,
}

/// The rules of a route, before it is attached.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Those that have requests, though perhaps only to answer them with an error.
    pub(super) compiled: Vec<Rule>,
    /// How many were written.
    pub(super) count: usize,
    /// Rules that cannot be honoured, each with the reason.
    pub(super) unusable: Vec<(usize, String)>,
    pub(super) unresolved: Option<Problem>,
}

enum Route<'a> {
    Http(&'a Object<HttpRoute>),
    Grpc(&'a Object<GrpcRoute>),
}

/// Attaches all HTTPRoutes and GRPCRoutes, oldest first.
pub(super) fn routes(cx: &mut Context<'_>, gateways: &mut [Gateway<'_>], statuses: &mut Statuses) {
    let mut services = Services::new(cx);
    let mut cross = CrossServing::default();
    let http = by_age(&cx.resources.http_routes).into_iter().map(Route::Http);
    let mut routes: Vec<Route<'_>> =
        http.chain(by_age(&cx.resources.grpc_routes).into_iter().map(Route::Grpc)).collect();
    // Stable: of the same age and name, the HTTPRoute stays in front.
    routes.sort_by_key(|route| match route {
        Route::Http(object) => age(&object.metadata),
        Route::Grpc(object) => age(&object.metadata),
    });
    for route in routes {
        match route {
            Route::Http(object) => {
                let spec = &object.spec;
                let rules = http::rules(cx, &mut services, object);
                let default = spec.use_default_gateways.as_deref();
                finish(
                    cx,
                    gateways,
                    (statuses, &mut cross),
                    object,
                    (&spec.parent_refs, &spec.hostnames, default),
                    &rules,
                );
            }
            Route::Grpc(object) => {
                let spec = &object.spec;
                let rules = grpc::rules(cx, &mut services, object);
                let default = spec.use_default_gateways.as_deref();
                finish(
                    cx,
                    gateways,
                    (statuses, &mut cross),
                    object,
                    (&spec.parent_refs, &spec.hostnames, default),
                    &rules,
                );
            }
        }
    }
}

/// Attaches a route. Rules that cannot be honoured are attached as well, to answer with an error instead of leaving
/// their requests to rules that were not meant for them.
fn finish<S: Kind>(
    cx: &mut Context<'_>,
    gateways: &mut [Gateway<'_>],
    (statuses, cross): (&mut Statuses, &mut CrossServing),
    object: &Object<S>,
    (parent_refs, hostnames, default): (&[ParentRef], &[String], Option<&str>),
    rules: &Rules,
) {
    let hostnames: Vec<Hostname> = hostnames.iter().map(|text| hostname(text)).collect();
    let mut parents = attach(cx, gateways, object, (parent_refs, default), &hostnames);
    cross.admit(cx, object, &mut parents);
    let verdict = verdict(rules);
    let mut served = std::collections::BTreeSet::new();
    for attachment in parents.iter().filter_map(|parent| parent.outcome.as_ref().ok()).flatten() {
        if !served.insert((attachment.gateway, attachment.listener)) {
            continue;
        }
        let listener = &mut gateways[attachment.gateway].listeners[attachment.listener];
        listener.attached_routes += usize::from(verdict.unsupported.is_none());
        listener.rules.extend(
            rules
                .compiled
                .iter()
                .map(|rule| Rule { hostnames: attachment.hostnames.clone(), ..rule.clone() }),
        );
    }
    parent_statuses(statuses, object, parents, &verdict);
}

fn verdict(rules: &Rules) -> Verdict {
    let mut verdict = Verdict { unresolved: rules.unresolved.clone(), ..Verdict::default() };
    let sentences: Vec<String> =
        rules.unusable.iter().map(|(index, sentence)| format!("rule {index}: {sentence}")).collect();
    let sentences = sentences.join("; ");
    if !rules.unusable.is_empty() && rules.unusable.len() == rules.count {
        verdict.unsupported = Some(Problem::new(UNSUPPORTED_VALUE, sentences));
    } else if !rules.unusable.is_empty() {
        verdict.partially_invalid = Some(format!("Dropped Rule, its requests get an error: {sentences}"));
    }
    verdict
}

/// Records the status of a route towards each of its parents.
pub(super) fn parent_statuses<S: Kind>(
    statuses: &mut Statuses,
    object: &Object<S>,
    parents: Vec<Parent>,
    verdict: &Verdict,
) {
    let generation = object.metadata.generation;
    let status = |parent: Parent| {
        let problem = parent.outcome.err().or_else(|| verdict.unsupported.clone());
        let mut conditions = vec![Condition::new("Accepted", problem.as_ref(), ACCEPTED, generation)];
        if let Some(message) = &verdict.partially_invalid {
            conditions.push(Condition {
                condition_type: "PartiallyInvalid",
                status: true,
                reason: UNSUPPORTED_VALUE.name,
                message: message.clone(),
                observed_generation: generation,
            });
        }
        conditions.push(Condition::new(
            "ResolvedRefs",
            verdict.unresolved.as_ref(),
            RESOLVED_REFS,
            generation,
        ));
        ParentStatus { parent: parent.reference, conditions }
    };
    let parents: Vec<ParentStatus> = parents.into_iter().map(status).collect();
    if !parents.is_empty() {
        statuses.routes.insert((S::KIND, object.key()), parents);
    }
}

impl Context<'_> {
    /// Says that a reference is good, but leads to nobody at present.
    pub(super) fn no_endpoints<S: Kind>(&mut self, object: &Object<S>, path: &str, to: &ObjectRef) {
        let what = if to.kind == "Service" { "no ready endpoint in any EndpointSlice" } else { "no address" };
        let message = format!("{} {} has {what}, so its share is refused", to.kind, to.name);
        self.say(object, path, Severity::Warning, "no-ready-endpoint", message);
    }
}
