//! Documents of the Gateway API before v1, rewritten to v1: `gatewayd migrate`.
//!
//! A text is read with its places ([`tree`]); [`rules`] says what each kind of each version is called today, and
//! [`edit`] changes those words and nothing else, so that comments, order and every other byte stay. Gateways of
//! v1alpha1 select their routes, routes of today name their Gateways: [`parents`] turns one into the other, which is
//! why all files are looked at together.
//!
//! Sources: the API's release notes from v0.3.0 to v1.6.0, and GEP-718 for `forwardTo`.

mod edit;
mod parents;
mod routes;
mod rules;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use self::{parents::Selections, tree::Tree};
use crate::{
    api::{Diagnostic, Place, Severity},
    source::{
        files,
        yaml::{self, SyntaxFault},
    },
};

/// What became of a file.
#[derive(Debug)]
pub struct Migrated {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub before: String,
    /// What it should hold.
    pub after: String,
}

/// What became of all files.
#[derive(Debug, Default)]
pub struct Migration {
    /// Files that must change.
    pub changed: Vec<Migrated>,
    /// What could not be read or has no successor, sorted by place.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads files and directories and works out what they should hold; writes nothing.
pub fn migrate(paths: &[PathBuf]) -> Migration {
    let (files, faults) = files::find(paths);
    let mut migration = Migration { diagnostics: faults, ..Migration::default() };
    let mut texts = Vec::new();
    for path in files {
        let name: Arc<str> = path.display().to_string().into();
        match read(&path, &name) {
            Ok(text) => texts.push((path, name, text)),
            Err(faults) => migration.diagnostics.extend(faults),
        }
    }
    let documents: Vec<Vec<Tree>> = texts.iter().map(|(.., text)| tree::parse(text)).collect();
    let selections = Selections::new(documents.iter().flatten().flat_map(rules::objects));
    for ((path, name, text), documents) in texts.into_iter().zip(&documents) {
        let (after, notes) = rules::rewrite(&text, documents, &selections);
        let place = |at: usize| place(&name, &text, at);
        migration.diagnostics.extend(notes.into_iter().map(|note| {
            let at = place(note.at);
            note.diagnostic(at)
        }));
        if after == text {
            continue;
        }
        if let Some(fault) = yaml::parse(&after).faults.first() {
            migration.diagnostics.push(not_rewritten(&name, fault));
        } else {
            migration.changed.push(Migrated { path, before: text, after });
        }
    }
    migration.diagnostics.sort();
    migration
}

impl Migrated {
    /// Puts the new text in the file's place, whole or not at all; links stay links, permissions stay as they are.
    pub fn write(&self) -> io::Result<()> {
        let file = fs::canonicalize(&self.path)?;
        let beside = file.parent().unwrap_or_else(|| Path::new("."));
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let draft = beside.join(format!(".{name}.{}", std::process::id()));
        let permissions = fs::metadata(&file)?.permissions();
        let written = fs::File::create_new(&draft).and_then(|mut new| {
            new.set_permissions(permissions)?;
            new.write_all(self.after.as_bytes())?;
            new.sync_all()
        });
        written.and_then(|()| fs::rename(&draft, &file)).inspect_err(|_| {
            let _may_not_exist = fs::remove_file(&draft);
        })
    }
}

fn read(path: &Path, name: &Arc<str>) -> Result<String, Vec<Diagnostic>> {
    let error = |place, code, message| Diagnostic {
        place,
        object: Some(name.to_string()),
        severity: Severity::Error,
        code,
        message,
    };
    let bytes = files::contents(path)
        .map_err(|why| vec![error(None, "file-unreadable", format!("cannot be read: {why}"))])?;
    let text = String::from_utf8(bytes)
        .map_err(|why| vec![error(None, "not-utf8", format!("is left as it is: {why}"))])?;
    let syntax = |SyntaxFault { at, code, message }| {
        error(Some(Place { file: Arc::clone(name), line: at.line, column: at.column }), code, message)
    };
    let faults: Vec<Diagnostic> = yaml::parse(&text).faults.into_iter().map(syntax).collect();
    if faults.is_empty() { Ok(text) } else { Err(faults) }
}

fn place(file: &Arc<str>, text: &str, at: usize) -> Place {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Place { file: Arc::clone(file), line, column }
}

/// The text is written in a way that these edits do not fit; better no change than a broken file.
fn not_rewritten(name: &Arc<str>, fault: &SyntaxFault) -> Diagnostic {
    Diagnostic {
        place: None,
        object: Some(name.to_string()),
        severity: Severity::Error,
        code: "not-rewritten",
        message: format!(
            "cannot be rewritten as it is laid out, and stays as it is (line {} would not be YAML: {}): put each \
             field on a line of its own",
            fault.at.line, fault.message
        ),
    }
}
