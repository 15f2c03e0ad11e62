//! What is said to people about the resources they wrote.

use std::{fmt, sync::Arc};

/// One thing that a person should know about their resources.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Diagnostic {
    /// Where it was written; none for objects that came from no file.
    pub place: Option<Place>,
    /// The object it is about, `KIND NAMESPACE/NAME`; none when it is about a file or the object has no name.
    pub object: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// Names the kind of fault: kebab-case, never renamed, so that scripts can rely on it.
    pub code: &'static str,
    /// One sentence in lower case, which says what to do when there is something to do.
    pub message: String,
}

/// Prints `FILE:LINE:COLUMN: CODE: SENTENCE`; what has no place starts with its object instead.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, &self.object) {
            (Some(place), _) => write!(f, "{place}: ")?,
            (None, Some(object)) => write!(f, "{object}: ")?,
            (None, None) => {}
        }
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// For information: something was left alone on purpose.
    Note,
    /// Everything asked for is served, but probably not as meant.
    Warning,
    /// Something asked for is not served.
    Error,
}

/// A place in a file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The file, as the user's paths lead to it.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
