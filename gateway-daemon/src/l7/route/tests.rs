//! Precedence, as rows.
