//! GatewayClasses: which Gateways are ours.

use std::collections::BTreeMap;

use super::{
    CONTROLLER_NAME, Context, IMPLICIT_CLASS,
    status::{ACCEPTED, Condition, INVALID_PARAMETERS, Problem, SUPPORTED_VERSION, Statuses},
};

/// What a GatewayClass means for its Gateways.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// We serve them.
    Ours,
    /// It is ours, but not as it stands.
    Refused,
    /// Somebody else serves them.
    Foreign,
}

/// All GatewayClasses by name.
pub(super) fn classes(cx: &mut Context<'_>, statuses: &mut Statuses) -> BTreeMap<String, Class> {
    let mut classes = BTreeMap::new();
    if cx.settings.implicit_class {
        classes.insert(IMPLICIT_CLASS.to_owned(), Class::Ours);
    }
    for object in cx.resources.gateway_classes.values() {
        let name = object.metadata.name.clone();
        if object.spec.controller_name != CONTROLLER_NAME {
            classes.insert(name, Class::Foreign);
            continue;
        }
        let problem = object.spec.parameters_ref.as_ref().map(|parameters| {
            let message = format!(
                "gatewayd takes no parameters, but the class refers to {} {}: remove parametersRef",
                parameters.kind, parameters.name
            );
            Problem::new(INVALID_PARAMETERS, message)
        });
        if let Some(problem) = &problem {
            cx.error(object, "spec.parametersRef", problem);
        }
        let generation = object.metadata.generation;
        let conditions = vec![
            Condition::new("Accepted", problem.as_ref(), ACCEPTED, generation),
            Condition::new("SupportedVersion", None, SUPPORTED_VERSION, generation),
        ];
        classes.insert(name.clone(), if problem.is_some() { Class::Refused } else { Class::Ours });
        statuses.classes.insert(name, conditions);
    }
    classes
}
